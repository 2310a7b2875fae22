package client_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// counting counts requests, and sends none.
type counting struct{ requests atomic.Int32 }

func (c *counting) RoundTrip(*http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return nil, errors.New("sent")
}

// A name, namespace, group or version that is no element of a path is an error before any request, also for discovery:
// the request would be for another object, or has a line break.
func TestInvalidNamesAreRejectedBeforeARequest(t *testing.T) {
	t.Parallel()
	sent := &counting{}
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1", Transport: sent})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	first := func(_ any, err error) error { return err }
	for _, invalid := range []string{"..", ".", "a/b", "../../secrets/a", "a%2fb", "a\nb", "a\r", "\x00"} {
		for what, key := range map[string]kube.Key{"name": {Namespace: "shop", Name: invalid}, "namespace": {Namespace: invalid, Name: "a"}} {
			object := func() *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			}
			for verb, err := range map[string]error{
				"get":     first(client.Get[*corev1.ConfigMap](ctx, c, key)),
				"exists":  first(client.Exists[*corev1.ConfigMap](ctx, c, key)),
				"create":  first(client.Create(ctx, c, object())),
				"update":  first(client.Update(ctx, c, object())),
				"apply":   first(client.Apply(ctx, c, object())),
				"patch":   first(client.Patch(ctx, c, object(), client.RawPatch(types.MergePatchType, []byte(`{"data":{}}`)))),
				"delete":  client.Delete(ctx, c, object()),
				"of kind": first(client.Get[*corev1.ConfigMap](ctx, c, kube.KeyOf(object()), client.SubresourceOf(object(), "status"))),
			} {
				if err == nil || !strings.Contains(err.Error(), "invalid name or namespace") {
					t.Errorf("%s with the %s %q: %v", verb, what, invalid, err)
				}
			}
		}
		for what, err := range map[string]error{
			"list":        first(client.All[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{invalid}})),
			"watch":       first(client.Watch[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{invalid}})),
			"subresource": first(client.Get[*corev1.ConfigMap](ctx, c, kube.KeyOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}), client.SubresourceOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, invalid))),
			"version":     first(client.Get[*unstructured.Unstructured](ctx, c, kube.Key{Name: "a"}, client.OfKind(corev1.SchemeGroupVersion.WithKind("x").GroupKind().WithVersion(invalid)))),
		} {
			if err == nil {
				t.Errorf("%s with %q: no error", what, invalid)
			}
		}
	}
	if n := sent.requests.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}
