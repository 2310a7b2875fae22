package informer_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// An empty list of Indexes means no default indexes: such an informer must not answer for one that has them.
func TestSharedKeepsOwnIndexesApart(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster),
			Indexes:   []informer.Index[*corev1.ConfigMap]{{Name: "k", Values: func(m *corev1.ConfigMap) []string { return []string{m.Data["k"]} }}},
		})
		if err != nil {
			d.Fatal(err)
		}
		without, err := informer.Shared(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster), Indexes: []informer.Index[*corev1.ConfigMap]{},
		})
		if err != nil {
			d.Fatal(err)
		}
		d.Cleanup(without.Join(d.Context()))
		with, err := informer.Shared(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)})
		if err != nil {
			d.Fatal(err)
		}
		d.Cleanup(with.Join(d.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, err := with.Count(informer.Query{Index: "k", Value: "dg=="}); n != 3 || err != nil {
			d.Errorf("the default index finds %d objects, %v", n, err)
		}
	})
}

// The error of SetDefaults has the mistake of the Retriever.
func TestSetDefaultsNamesProblemOfRetriever(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		r := informer.RetrieveMetadata[*unstructured.Unstructured](d.cluster, web())
		_, newErr := informer.New(informer.Config[*metav1.PartialObjectMetadata]{Retriever: r})
		err := informer.SetDefaults(informer.Config[*metav1.PartialObjectMetadata]{Retriever: r})
		if err == nil || !strings.Contains(err.Error(), "set Selection.Kind") {
			d.Errorf("SetDefaults: %v\nNew: %v", err, newErr)
		}
		err = informer.SetDefaults(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](nil)})
		if err == nil || !strings.Contains(err.Error(), "the cluster is nil") {
			d.Errorf("SetDefaults: %v", err)
		}
	})
}

// An informer of two Clusters.
// A default field selector on the namespace.
func TestDefaultSelectionOfNamespaces(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*corev1.Secret]{
			Retriever: informer.RetrieveSelected[*corev1.Secret](d.cluster, kube.Selection{FieldSelector: "metadata.namespace!=a"}),
			Indexes:   []informer.Index[*corev1.Secret]{{Name: "type", Values: func(m *corev1.Secret) []string { return []string{string(m.Type)} }}},
		})
		if err != nil {
			d.Fatal(err)
		}
		secrets, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](d.cluster)})
		expect(d, "Secrets", secrets, err, "b/web")
		meta, err := informer.As[*metav1.PartialObjectMetadata](secrets)
		if err != nil {
			d.Fatal(err)
		}
		c, err := client.New(client.Config{Cluster: d.cluster, Informers: []client.Informer{secrets, meta}})
		if err != nil {
			d.Fatal(err)
		}
		d.server.Requests()
		for name, n := range map[string]struct {
			kube.Selection
			want, requests int
		}{
			"all": {kube.Selection{}, 3, 1},
			"a":   {kube.Selection{Namespaces: []string{"a"}}, 2, 1},
			"b":   {kube.Selection{Namespaces: []string{"b"}}, 1, 0},
		} {
			all, err := client.All[*corev1.Secret](d.Context(), c, n.Selection)
			requests := d.server.Requests()
			if len(all) != n.want || err != nil || len(requests) != n.requests {
				d.Errorf("%s: %d, %v, %q", name, len(all), err, requests)
			}
			keys, err := client.Keys[*corev1.Secret](d.Context(), c, n.Selection)
			requests = d.server.Requests()
			if len(keys) != n.want || err != nil || len(requests) != n.requests {
				d.Errorf("keys: %s: %d, %v, %q", name, len(keys), err, requests)
			}
		}
		if _, err := client.Get[*metav1.PartialObjectMetadata](d.Context(), c, kube.Key{Namespace: "a", Name: "other"}, client.OfKind(corev1.SchemeGroupVersion.WithKind("Secret"))); err != nil {
			d.Error(err)
		}
	})
}

// Either SetDefaults succeeds and each informer has the defaults, or it fails and none has.
func TestSetDefaultsIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	for range 30 {
		withDefaults(t, func(d *defaults) {
			var all sync.WaitGroup
			var setErr error
			informers := make([]*informer.Informer[*corev1.ConfigMap], 6)
			all.Go(func() {
				setErr = informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
					Retriever: informer.RetrieveSelected[*corev1.ConfigMap](d.cluster, web()), Transform: hide,
				})
			})
			for n := range informers {
				all.Go(func() {
					var err error
					if informers[n], err = informer.Shared(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)}); err != nil {
						d.Error(err)
					}
				})
			}
			all.Wait()
			for _, i := range informers {
				if setErr == nil {
					expect(d, "set", i, nil, "a/web=hidden", "b/web=hidden")
				} else {
					expect(d, "not set", i, nil, "a/other=dg==", "a/web=dg==", "b/web=dg==")
				}
			}
			if n := d.watches(); n != 1 {
				d.Errorf("%d watches", n)
			}
		})
	}
}

// Defaults, a limited Cluster, a kind that is installed again with another scope.
func TestDefaultSelectionOfClusterScopedKind(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		if err := d.cluster.SetNamespaces("a", "b"); err != nil {
			d.Fatal(err)
		}
		selection := kube.Selection{Kind: apitest.KindNamed("Widget"), LabelSelector: "app=web"}
		if err := informer.SetDefaults(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection), Optional: true,
		}); err != nil {
			d.Fatal(err)
		}
		selection.LabelSelector = ""
		i, err := informer.Shared(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection),
		})
		expect(d, "cluster-scoped", i, err, "web")
		same, err := informer.Shared(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection),
		})
		expect(d, "shared after rescope", same, err, "web")
		if n := d.watches(); n != 1 {
			d.Errorf("%d watches", n)
		}
		if err := same.SetRetriever(d.Context(), informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection)); err == nil {
			d.Error("SetRetriever of a shared informer")
		}
		own, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection),
		})
		expect(d, "own", own, err, "web")
		err = own.SetRetriever(d.Context(), informer.RetrieveSelected[*metav1.PartialObjectMetadata](d.cluster, selection))
		expect(d, "own again", own, err, "web")
	})
}

// A client does not answer a selection by labels from an informer whose defaults cut labels.
func TestClientDoesNotSelectByCutLabels(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		err := informer.SetDefaults(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster), Cut: []string{"metadata.labels"},
		})
		if err != nil {
			d.Fatal(err)
		}
		maps, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster)})
		expect(d, "ConfigMaps", maps, err, "a/other=dg==", "a/web=dg==", "b/web=dg==")
		c, err := client.New(client.Config{Cluster: d.cluster, Informers: []client.Informer{maps}})
		if err != nil {
			d.Fatal(err)
		}
		all, err := client.All[*corev1.ConfigMap](d.Context(), c, web())
		if err != nil || len(all) != 2 {
			d.Errorf("All: %d, %v", len(all), err)
		}
		keys, err := client.Keys[*corev1.ConfigMap](d.Context(), c, web())
		if err != nil || len(keys) != 2 {
			d.Errorf("Keys: %d, %v", len(keys), err)
		}
	})
}

// The end of a streamed list is an annotation: a Cut of all annotations must not remove it.
func TestCutOfAnnotationsKeepsStreamedLists(t *testing.T) {
	t.Parallel()
	withDefaults(t, func(d *defaults) {
		log := &testlog.Buffer{}
		d.cluster.SetLogger(log.Logger(nil))
		synced := func(name string, i informer.Any, err error) {
			d.Helper()
			if err != nil {
				d.Fatal(err)
			}
			d.Cleanup(i.Join(d.Context()))
			began := time.Now()
			if err := i.WaitSynced(d.Context()); err != nil {
				d.Error(err)
			}
			if took := time.Since(began); took > time.Second {
				d.Errorf("%s: synced after %s, log: %s", name, took, log.String())
			}
		}
		cut := []string{"metadata.annotations"}
		maps, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](d.cluster), Cut: cut})
		synced("protobuf", maps, err)
		widgets, err := informer.New(informer.Config[*unstructured.Unstructured]{Retriever: informer.RetrieveSelected[*unstructured.Unstructured](
			d.cluster, kube.Selection{Kind: apitest.KindNamed("Widget")}), Cut: cut})
		synced("JSON", widgets, err)
		metadata, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{Retriever: informer.RetrieveMetadata[*corev1.Secret](d.cluster, kube.Selection{}), Cut: cut})
		synced("metadata", metadata, err)
		program, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: programRetriever{informer.Retrieve[*corev1.ConfigMap](d.cluster)}, Cut: cut})
		synced("a Retriever of the program", program, err)
	})
}
