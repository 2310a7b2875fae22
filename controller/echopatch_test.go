package controller

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
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
		if got := lockOf(call); got != want {
			t.Errorf("%s demands version %q, want %q", patch, got, want)
		}
		after := &wire.Object{UID: "u", ResourceVersion: "9"}
		if got := baseOf(call, nil, answer{object: after}, nil); got != want {
			t.Errorf("%s led away from %q, want %q", patch, got, want)
		}
		after.ResourceVersion = "7" // the patch changes nothing
		if got := baseOf(call, nil, answer{object: after}, nil); got != "" {
			t.Errorf("%s changed nothing, and led away from %q", patch, got)
		}
	}
}

// TestStatusPatchIsComparedByStatusAlone compares the two ways to detect that a status patch is the only change between
// two states. The fast way must report this only if the other one does.
func TestStatusPatchIsComparedByStatusAlone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 8))
	state := func() map[string]any {
		object := map[string]any{"apiVersion": "v1", "kind": "Widget"}
		metadata := map[string]any{"name": "a", "uid": "u", "resourceVersion": fmt.Sprint(random.IntN(9))}
		if random.IntN(4) == 0 {
			metadata["labels"] = map[string]any{"a": fmt.Sprint(random.IntN(2))}
		}
		if random.IntN(8) == 0 {
			metadata["deletionTimestamp"] = fmt.Sprintf("2026-11-22T09:00:0%dZ", random.IntN(2))
		}
		object["metadata"], object["spec"] = metadata, map[string]any{"size": random.IntN(2)}
		if random.IntN(5) > 0 {
			object["status"] = map[string]any{"a": random.IntN(2), "list": []any{random.IntN(2)}}
		}
		return object
	}
	fast, slow := 0, 0
	for range testlength.Count(4_000, 20_000) {
		from, to := state(), state()
		operations := []map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": "u"},
			{"op": "add", "path": "/status/a", "value": random.IntN(2)},
		}
		if random.IntN(2) == 0 {
			operations = append(operations, map[string]any{"op": "add", "path": "/status/list/-", "value": random.IntN(2)})
			if status, ok := to["status"].(map[string]any); ok {
				status["list"] = append(status["list"].([]any), random.IntN(2))
			}
		}
		call := kube.Call{Verb: "patch", Subresource: "status", RequestType: string(types.JSONPatchType), Request: bytesOf(t, operations)}
		before, after := parsed(t, from), parsed(t, to)
		content := map[string]any{}
		if err := utiljson.Unmarshal(after.Bytes, &content); err != nil {
			t.Fatal(err)
		}
		isFast, isSlow := isStatusPatched(call, before, after), isPatched(call, before.Bytes, content)
		if isFast && !isSlow {
			t.Fatalf("%s from %s to %s: only the fast way takes it for the patch's", call.Request, before.Bytes, after.Bytes)
		}
		if isFast {
			fast++
		}
		if isSlow {
			slow++
		}
	}
	if fast < slow*2/3 || fast == 0 {
		t.Errorf("%d of %d steps were told the fast way", fast, slow)
	}
}

func bytesOf(t *testing.T, value any) []byte {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func parsed(t *testing.T, object map[string]any) *wire.Object {
	t.Helper()
	parsed, err := wire.Parse(bytesOf(t, object), nil)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestKindOfAnswer checks that the kind of a response is found at every position in it.
func TestKindOfAnswer(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{}}`:                       "apps/v1, Kind=Deployment",
		`{"metadata":{"kind":"No"},"apiVersion":"v1","spec":[1,{"a":2}],"kind":"Service"}`: "/v1, Kind=Service",
		`{"apiVersion":"v1"}`:            "/v1, Kind=",
		`{}`:                             "/, Kind=",
		`{"kind":7,"apiVersion":"v1"}`:   "/, Kind=",
		`{"metadata":{`:                  "/, Kind=",
		`[]`:                             "/, Kind=",
		``:                               "/, Kind=",
		`{"kind":"A","apiVersion":"b"}]`: "/b, Kind=A",
	} {
		if got := kindOf([]byte(encoded)).String(); got != want {
			t.Errorf("%s is of kind %q, want %q", encoded, got, want)
		}
	}
}
