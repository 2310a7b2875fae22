package client_test

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
)

// TestUnstructuredObjectsWithInts: DeepCopy of an unstructured object panics for an int.
func TestUnstructuredObjectsWithInts(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if r.Method == http.MethodGet {
			refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "w"))
			return true
		}
		return echo(w, r, body)
	}
	c = with(t, c, func(config *client.Config) { config.Namespace, config.FieldOwner = "shop", "me" })
	written := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "shop.example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": 3, "list": []string{"a"}},
		}}
	}
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": 3},
	}}
	first := func(_ any, err error) error { return err }
	const body = `{"apiVersion":"shop.example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop"},"spec":{"list":["a"],"size":3}}`
	for name, test := range map[string]struct {
		do   func() error
		want string // the suffix of the last request
	}{
		"create": {func() error { return first(client.Create(t.Context(), c, written())) }, body},
		"update": {func() error { return first(client.Update(t.Context(), c, written())) }, body},
		"apply":  {func() error { return first(client.Apply(t.Context(), c, written())) }, body},
		"patch": {func() error {
			changed := written()
			changed.Object["spec"] = map[string]any{"size": 5, "list": []string{"a"}}
			return first(client.Patch(t.Context(), c, written(), client.MergeFrom(written(), changed)))
		}, `{"spec":{"size":5}}`},
		"the body of a subresource": {func() error {
			return first(client.Update(t.Context(), c, scale, client.SubresourceOf(database(), "scale")))
		}, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":3}}`},
	} {
		if err := test.do(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		log := server.log()
		if got := log[len(log)-1]; !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: the request is %s, want %s", name, got, test.want)
		}
	}
	if scale.GetName() != "" {
		t.Error("an argument was changed")
	}
}
