package client_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
)

func TestMergePatches(t *testing.T) {
	t.Parallel()
	newObject := func(content string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Widget","metadata":{"name":"w"}`+content+`}`), u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, test := range map[string]struct{ before, after, want string }{
		"nothing":               {`,"spec":{"a":[1,{"b":2}]}`, `,"spec":{"a":[1,{"b":2}]}`, `{}`},
		"a field":               {`,"spec":{"a":1,"b":2}`, `,"spec":{"a":1,"b":3}`, `{"spec":{"b":3}}`},
		"a number beyond 2^53":  {`,"spec":{"a":9007199254740992}`, `,"spec":{"a":9007199254740993}`, `{"spec":{"a":9007199254740993}}`},
		"a field less":          {`,"spec":{"a":1,"b":2}`, `,"spec":{"a":1}`, `{"spec":{"b":null}}`},
		"null is not there":     {`,"spec":{"a":1}`, `,"spec":{"a":1,"b":null}`, `{}`},
		"set to null":           {`,"spec":{"a":1}`, `,"spec":{"a":null}`, `{"spec":{"a":null}}`},
		"a list":                {`,"spec":{"a":[1,2]}`, `,"spec":{"a":[2]}`, `{"spec":{"a":[2]}}`},
		"a map where none was":  {`,"spec":{}`, `,"spec":{"a":{"b":{}}}`, `{"spec":{"a":{"b":{}}}}`},
		"a map in place of one": {`,"spec":{"a":1}`, `,"spec":{"a":{"b":1}}`, `{"spec":{"a":{"b":1}}}`},
	} {
		if got := client.MergeFrom(newObject(test.before), newObject(test.after)).String(); got != test.want {
			t.Errorf("%s: the patch is %s, want %s", name, got, test.want)
		}
	}
	created := database()
	created.TypeMeta = metav1.TypeMeta{}
	if patch := client.MergeFrom(database(), created); !patch.Empty() {
		t.Errorf("of an object that was read and one that was made, the patch is %s", patch)
	}
}

func TestLockedPatches(t *testing.T) {
	t.Parallel()
	changed := database()
	changed.Labels = map[string]string{"a": "<b>"}
	for want, patch := range map[string]client.PatchBody{
		`{"metadata":{"labels":{"a":"\u003cb\u003e"},"resourceVersion":"7"}}`:                                                      client.MergeFrom(database(), changed),
		`[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/spec/a","value":9007199254740993}]`: client.JSONPatch(client.Operation{Op: "add", Path: "/spec/a", Value: int64(9007199254740993)}),
		`{}`: client.MergeFrom(database(), database()),
	} {
		if got := patch.Locked(database()).String(); got != want {
			t.Errorf("the patch is %s, want %s", got, want)
		}
	}
	server, c := newServer(t)
	unknown := &corev1.Pod{}
	for want, patch := range map[string]client.PatchBody{
		"the object has no resourceVersion: use":              client.MergeFrom(database(), changed).Locked(unknown),
		"compare the objects: an object is nil":               client.MergeFrom(database(), nil),
		"one object is a *v1.StatefulSet and the other one a": client.MergeFrom(database(), unknown),
		"one object is shop/db and the other one ":            client.MergeFrom(database(), &appsv1.StatefulSet{}),
	} {
		if _, err := client.Patch(t.Context(), c, database(), patch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	same := database()
	if got, err := client.Patch(t.Context(), c, same, client.MergeFrom(same, same)); got != same || err != nil {
		t.Errorf("an empty patch returns %v, %v", got, err)
	}
	server.expectNoRequests(t)
}

// TestLockedRequiresResourceVersion: Locked needs an object with a resourceVersion.
func TestLockedRequiresResourceVersion(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	changed := database()
	changed.Labels = map[string]string{"a": "b"}
	for _, nothing := range []metav1.Object{nil, (*appsv1.StatefulSet)(nil)} {
		if _, err := client.Patch(t.Context(), c, database(), client.MergeFrom(database(), changed).Locked(nothing)); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("the error is %v", err)
		}
	}
	server.expectNoRequests(t)
}
