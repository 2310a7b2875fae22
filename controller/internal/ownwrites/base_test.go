package ownwrites

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestJSONPatchNamesItsBaseVersion checks that the base of a JSON patch that tests a resourceVersion is that version,
// unless the patch also changes the resourceVersion in another way.
func TestJSONPatchNamesItsBaseVersion(t *testing.T) {
	t.Parallel()
	lock := `{"op":"replace","path":"/metadata/resourceVersion","value":"7"}`
	for patch, want := range map[string]string{
		`[` + lock + `,{"op":"add","path":"/status/a","value":1}]`:                                       "7",
		`[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`:                                 "7",
		`[{"op":"add","path":"/status/a","value":1}]`:                                                    "",
		`[{"op":"remove","path":"/metadata/resourceVersion"}]`:                                           "",
		`[{"op":"replace","path":"/metadata/resourceVersion","value":7}]`:                                "",
		`[` + lock + `,` + lock + `]`:                                                                    "",
		`[` + lock + `,{"op":"remove","path":"/metadata/resourceVersion"}]`:                              "",
		`[` + lock + `,{"op":"replace","path":"/metadata","value":{}}]`:                                  "",
		`[` + lock + `,{"op":"replace","path":"","value":{}}]`:                                           "",
		`[` + lock + `,{"op":"move","from":"/metadata/resourceVersion","path":"/metadata/labels/a"}]`:    "",
		`[{"op":"add","path":"/metadata/annotations/x","value":"/metadata/resourceVersion"}]`:            "",
		`[` + lock + `,{"op":"copy","from":"/metadata","path":"/metadata/annotations"}]`:                 "",
		`[` + lock + `,{"op":"test","path":"/metadata/uid","value":"u"},{"op":"remove","path":"/spec"}]`: "7",
	} {
		call := kube.Call{Verb: "patch", RequestType: string(types.JSONPatchType), Request: []byte(patch)}
		if got := versionInJSONPatch(call); got != want {
			t.Errorf("%s requires version %q, want %q", patch, got, want)
		}
		after := &wire.Object{UID: "u", ResourceVersion: "9"}
		if got := baseVersion(call, nil, cache.Response{Object: after}, nil); got != want {
			t.Errorf("%s has base %q, want %q", patch, got, want)
		}
		after.ResourceVersion = "7" // the patch changes nothing
		if got := baseVersion(call, nil, cache.Response{Object: after}, nil); got != "" {
			t.Errorf("%s changed nothing, and has base %q", patch, got)
		}
	}
}
