package ownwrites

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

// TestContract13_JSONPatchExplainsItsResult checks that the result of a JSON patch is computed, and that any other
// change between the states is detected.
func TestContract13_JSONPatchExplainsItsResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		subresource, patch, from, to string
		want                         bool
	}{
		"a field": {
			"", `[{"op":"replace","path":"/spec/a","value":2}]`,
			`{"metadata":{"resourceVersion":"1","generation":1},"spec":{"a":1,"b":1}}`,
			`{"metadata":{"resourceVersion":"2","generation":2,"managedFields":[]},"spec":{"a":2,"b":1}}`, true,
		},
		"a field that goes":             {"", `[{"op":"remove","path":"/spec/a"}]`, `{"spec":{"a":1,"b":1}}`, `{"spec":{"b":1}}`, true},
		"a finalizer of several":        {"", `[{"op":"test","path":"/metadata/finalizers/1","value":"b"},{"op":"remove","path":"/metadata/finalizers/1"}]`, `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a"]}}`, true},
		"the last finalizer":            {"", `[{"op":"remove","path":"/metadata/finalizers/0"}]`, `{"metadata":{"name":"x","finalizers":["a"]}}`, `{"metadata":{"name":"x"}}`, true},
		"and one of another client":     {"", `[{"op":"remove","path":"/metadata/finalizers/1"}]`, `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a","c"]}}`, false},
		"another field":                 {"", `[{"op":"replace","path":"/spec/a","value":2}]`, `{"spec":{"a":1,"b":1}}`, `{"spec":{"a":2,"b":2}}`, false},
		"another field that is gone":    {"", `[{"op":"remove","path":"/spec/a"}]`, `{"spec":{"a":1,"b":1}}`, `{"spec":{}}`, false},
		"a deletion meanwhile":          {"", `[{"op":"replace","path":"/spec/a","value":2}]`, `{"metadata":{},"spec":{"a":1}}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"a":2}}`, false},
		"a large number":                {"", `[{"op":"replace","path":"/spec/a","value":9007199254740993}]`, `{"spec":{"a":1}}`, `{"spec":{"a":9007199254740992}}`, false},
		"the status":                    {"status", `[{"op":"add","path":"/status","value":{"a":1}}]`, `{"spec":{}}`, `{"spec":{},"status":{"a":1}}`, true},
		"the rest, by the status":       {"status", `[{"op":"add","path":"/spec/a","value":1}]`, `{"spec":{}}`, `{"spec":{}}`, false},
		"a patch that does not fit":     {"", `[{"op":"remove","path":"/spec/a"}]`, `{"spec":{}}`, `{"spec":{}}`, false},
		"a test that would have failed": {"", `[{"op":"test","path":"/spec/a","value":2},{"op":"add","path":"/spec/b","value":1}]`, `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":1}}`, false},
		"no patch":                      {"", `{"spec":{"a":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var from, to map[string]any
			for into, encoded := range map[*map[string]any]string{&from: test.from, &to: test.to} {
				if err := utiljson.Unmarshal([]byte(encoded), into); err != nil {
					t.Fatal(err)
				}
			}
			call := kube.Call{Verb: "patch", Subresource: test.subresource, RequestType: string(types.JSONPatchType), Request: []byte(test.patch)}
			if got := isPatchResult(call, from, to); got != test.want {
				t.Errorf("the patch is the only difference: %t, want %t", got, test.want)
			}
			if got := isJSONPatchResult(call, []byte(test.from), to); got != test.want {
				t.Errorf("the patch is the only difference to the bytes: %t, want %t", got, test.want)
			}
		})
	}
}

// TestStatusPatchIsComparedByStatusAlone compares the two ways to detect that a status patch is the only change between
// two states. The fast way must report this only if the other one does.
func TestStatusPatchIsComparedByStatusAlone(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
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
		isFast, isSlow := isStatusPatchResult(call, before, after), isJSONPatchResult(call, before.Bytes, content)
		if isFast && !isSlow {
			t.Fatalf("%s from %s to %s: only the fast way reports that the patch is the only difference", call.Request, before.Bytes, after.Bytes)
		}
		if isFast {
			fast++
		}
		if isSlow {
			slow++
		}
	}
	if fast < slow*2/3 || fast == 0 {
		t.Errorf("the fast way recognized %d of %d steps", fast, slow)
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
