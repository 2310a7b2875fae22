package apiserver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"
)

// A merge of decoded objects has the result of the library that merges JSON texts: random objects and patches.
func TestMergeObjects(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(9); {
		case n < 3 && depth > 0:
			object := map[string]any{}
			for range random.IntN(4) {
				object[fmt.Sprint("k", random.IntN(4))] = value(depth - 1)
			}
			return object
		case n < 5 && depth > 0:
			list := []any{}
			for range random.IntN(3) {
				list = append(list, value(depth-1))
			}
			return list
		case n < 6:
			return nil
		}
		return []any{true, "text", int64(random.IntN(3)), 1.5}[random.IntN(4)]
	}
	object := func() map[string]any {
		return map[string]any{"a": value(3), "b": value(3), "c": value(3)}
	}
	for range 5000 {
		before, patch := object(), object()
		beforeText, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		patchText, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		after, err := jsonpatch.MergePatch(beforeText, patchText)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(after, &want); err != nil {
			t.Fatal(err)
		}
		mergeObjects(before, patch)
		if diff := cmp.Diff(want, before); diff != "" {
			t.Fatalf("%s merged into %s (-library +ours)\n%s", patchText, beforeText, diff)
		}
	}
}

// The short way of merge patches of custom resources has the responses of the long way, errors and warnings included. The
// white space in the second patch is a duplicate field's, which selects the long way.
func TestMergePatchOfCustomResource(t *testing.T) {
	t.Parallel()
	const path = "/apis/example.com/v1/namespaces/shop/widgets"
	for _, patch := range []string{
		`{"spec":{"size":2,"none":null,"new":{"none":null,"a":[{"none":null}]}}}`,
		`{"metadata":{"labels":{"a":"b"},"annotations":null,"finalizers":["example.com/f"]}}`,
		`{"metadata":{"labels":{}},"status":{"phase":"Ready"}}`,
		`{"metadata":{"labels":{"a":1}}}`,
		`{"metadata":{"unknown":1}}`,
		`{"metadata":null}`, `{"metadata":[]}`,
		`{"metadata":{"creationTimestamp":null,"uid":null,"name":"b"}}`,
		`{"metadata":{"generation":7,"creationTimestamp":"2000-01-01T00:00:00Z"}}`,
		`{"spec":null}`, `{"spec":1.0}`, `{"spec":{"size":9223372036854775808}}`, `{"spec":{"size":1,"size":2}}`,
		`[]`, `null`, `1`, `{`, `{}`,
	} {
		synctest.Test(t, func(t *testing.T) { // both sides have the same time
			long := newServer(t)
			mustSend(t, long, "POST", path, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","annotations":{"x":"y"}},"spec":{"size":1,"none":3}}`)
			short := long.Fork()
			withKind := patch
			if len(patch) > 2 && patch[0] == '{' {
				withKind = `{"kind":"Widget",` + patch[1:]
			}
			shortCode, shortText := send(t, short, "PATCH", path+"/a", patch, "Content-Type", "application/merge-patch+json")
			longCode, longText := send(t, long, "PATCH", path+"/a", withKind, "Content-Type", "application/merge-patch+json")
			if shortCode != longCode || shortText != longText {
				t.Errorf("%s: %d %s, want %d %s", patch, shortCode, shortText, longCode, longText)
			}
		})
	}
}
