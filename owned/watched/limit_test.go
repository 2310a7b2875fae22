package watched_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// A child of a cluster-scoped owner in a namespace outside of the limit could not be found again, so Apply rejects it.
func TestChildrenOutsideOfLimitAreRejected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespaces []string
		limit      []string
	}{
		"default":      {nil, []string{"a"}},
		"NamespaceAll": {[]string{metav1.NamespaceAll}, []string{"a"}},
		"not limited":  {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps(), apitest.Nodes())
				server.Apply("nodes", kube.Key{Name: "n"}, "test", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)
				cluster, err := kube.Connect(server.Config("test"))
				if err != nil {
					t.Fatal(err)
				}
				if err := cluster.SetNamespaces(test.limit...); err != nil {
					t.Fatal(err)
				}
				children, err := watched.New(watched.Config{
					Client: client.Config{Cluster: cluster, FieldOwner: "op"},
					Set:    owned.Config{Name: "op", Namespaces: test.namespaces},
					Kinds:  []watched.Kind{watched.Of[*corev1.ConfigMap]()},
				})
				if err != nil {
					t.Fatal(err)
				}
				owner, err := client.Get[*corev1.Node](t.Context(), children.Client, kube.Key{Name: "n"})
				if err != nil {
					t.Fatal(err)
				}
				child := func(ns string) *corev1.ConfigMap {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "child"}}
				}
				report, err := children.Set.Apply(t.Context(), owner, owned.Of(child("a"), child("c"))...)
				if rejected := err != nil; rejected != (test.limit != nil) {
					t.Errorf("apply outside of the limit: %v, %v", report, err)
				}
				time.Sleep(time.Second)
				if report, err = children.Set.Apply(t.Context(), owner, owned.Of(child("a"))...); err != nil {
					t.Errorf("apply without it: %v, %v", report, err)
				}
				if got := server.Keys("configmaps"); slices.Contains(got, "c/child") {
					t.Errorf("after a prune: %q", got)
				}
				time.Sleep(time.Second)
				for range 3 {
					if report, err = children.Set.Delete(t.Context(), owner); err != nil {
						t.Errorf("delete: %v, %v", report, err)
					}
				}
				if got := server.Keys("configmaps"); len(got) > 0 {
					t.Errorf("after Delete: %q", got)
				}
			})
		})
	}
}

// Defaults of informers neither hide children nor parts of them.
func TestChildrenIgnoreDefaultSelectionOfInformers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets())
		cluster, err := kube.Connect(server.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		err = informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{LabelSelector: "app=web"}),
			Cut:       []string{"data"}, Transform: func(m *corev1.ConfigMap) error { m.Data = nil; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		children, err := watched.New(watched.Config{
			Client: client.Config{Cluster: cluster, FieldOwner: "op"},
			Kinds: []watched.Kind{watched.Of(func(c *informer.Config[*corev1.ConfigMap]) {
				c.Retriever = informer.Retrieve[*corev1.ConfigMap](cluster) // also one without the label of the set
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, objects := range children.Client.Config().Informers {
			t.Cleanup(objects.(informer.Any).Join(t.Context()))
		}
		time.Sleep(time.Minute)
		owner, err := client.Create(t.Context(), children.Client, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "owner"}})
		if err != nil {
			t.Fatal(err)
		}
		apply := func() (requests []string) {
			_, err := children.Set.Apply(t.Context(), owner, owned.Of(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "child"}, Data: map[string]string{"k": "v"},
			})...)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			return server.Requests()
		}
		if apply(); !slices.Equal(server.Keys("configmaps"), []string{"a/child"}) {
			t.Errorf("children: %q", server.Keys("configmaps"))
		}
		if requests := apply(); len(requests) > 0 {
			t.Errorf("an unchanged child, which the informer shows, needs the requests %q", requests)
		}
	})
}
