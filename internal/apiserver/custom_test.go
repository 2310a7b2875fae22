package apiserver

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Metadata that is not converted is what the conversion would return: random metadata with values of all types.
func TestUnconvertedMetadata(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	names := []string{
		"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "labels", "annotations", "finalizers", "ownerReferences", "managedFields", "unknown",
	}
	usual := map[string]string{
		"generation": `3`, "deletionGracePeriodSeconds": `0`, "labels": `{"a":"b","c":""}`, "annotations": `{"a":"b"}`,
		"creationTimestamp": `"2000-01-01T00:00:00Z"`, "deletionTimestamp": `"2026-11-23T07:19:10Z"`, "finalizers": `["a/b",""]`,
		"ownerReferences": `[{"apiVersion":"v1","kind":"","name":"n","uid":"u","controller":true}]`,
		"managedFields":   `[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2000-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{".":{}}}}]`,
	}
	unusual := []string{
		`null`, `0`, `1`, `1.0`, `1.5`, `-1`, `true`, `""`, `"x"`, `{}`, `[]`, `[{}]`, `[""]`, `["a",null]`, `[1]`, `{"a":null}`, `{"a":1}`, `{"a":{}}`,
		`"2000-01-01T00:00:00.5Z"`, `"2000-01-01T01:00:00+01:00"`, `"0001-01-01T00:00:00Z"`, `"2000-02-30T00:00:00Z"`, `9223372036854775807`,
		`[{"apiVersion":"v1","kind":"k","name":"n"}]`, `[{"apiVersion":"v1","kind":"k","name":"n","uid":"u","x":1}]`, `[{"manager":""}]`,
		`[{"manager":"m","x":"y"}]`, `[{"time":"2000-01-01T00:00:00.5Z"}]`, `[{"fieldsV1":{"f:a":1}}]`, `[{"fieldsV1":null}]`, `[{"fieldsV1":{}}]`,
	}
	unconverted := 0
	for range 20_000 {
		object := "{"
		for _, name := range names {
			value := usual[name]
			switch p := random.IntN(40); {
			case p >= 30:
				continue
			case p == 0:
				value = pick(unusual...)
			case name == "unknown":
				continue
			case value == "":
				value = `"text"`
			}
			if object != "{" {
				object += ","
			}
			object += `"` + name + `":` + value
		}
		object += "}"
		var metadata any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &metadata); err != nil {
			t.Fatal(err)
		}
		if !isObjectMeta(metadata) {
			continue
		}
		unconverted++
		var m metav1.ObjectMeta
		if unknown, err := kjson.UnmarshalStrict([]byte(object), &m); err != nil || len(unknown) > 0 {
			t.Fatalf("%s: %v %v", object, unknown, err)
		}
		want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(want), metadata); diff != "" {
			t.Fatalf("%s (-converted +unconverted)\n%s", object, diff)
		}
	}
	if unconverted < 5000 {
		t.Errorf("only %d of 20,000 were not converted", unconverted)
	}
}

// A stored object has metadata that needs no conversion.
func TestStoredMetadataIsUnconverted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	text := mustSend(t, s, "POST", "/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget",
		"metadata":{"name":"a","labels":{"app":"web"},"finalizers":["example.com/f"],
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]},"spec":{"n":1}}`)
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(text), &u); err != nil {
		t.Fatal(err)
	}
	if !isObjectMeta(u.Object["metadata"]) {
		t.Errorf("metadata %v", u.Object["metadata"])
	}
}
