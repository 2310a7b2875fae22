package source_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

func TestOwnedEnqueuesOwnerOfChangedChild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(child("before", by("a")), child("nobodys"))
		q, stop := start(t, source.OwnedIn(newInformer(t, server), source.Owner{Kind: website()}))
		defer stop()
		q.expect(t, "ns/a: ns/before listed")
		server.Put(child("c", by("a")))
		q.expect(t, "ns/a: ns/c added")
		changed := child("c", by("a"))
		changed.Data = map[string]string{"x": "y"}
		server.Put(changed)
		q.expect(t, "ns/a: ns/c updated") // once, although both states have this owner
		server.Delete(key("c"))
		q.expect(t, "ns/a: ns/c deleted")
		server.Put(child("nobodys"))
		server.Delete(key("nobodys"))
		q.expect(t)
	})
}

// annotated returns the owner that is named in an annotation, which may be in any namespace.
func annotated(child *metav1.PartialObjectMetadata) []kube.Key {
	owner, err := kube.ParseKey(child.Annotations["owner"])
	if err != nil {
		return nil
	}
	return []kube.Key{owner}
}

func TestOwnedByUsesFunctionForOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		annotate := func(owner string) configMap {
			obj := child("c", by("a"))
			obj.Labels, obj.Finalizers = map[string]string{"l": "v"}, []string{"example.com/f"}
			obj.Annotations = map[string]string{"owner": owner}
			return obj
		}
		var seen *metav1.PartialObjectMetadata
		q, stop := start(t, source.OwnedBy(newInformer(t, server), func(child *metav1.PartialObjectMetadata) []kube.Key {
			seen = child
			return annotated(child)
		}))
		defer stop()
		q.expect(t)
		server.Put(annotate("far/a"))
		q.expect(t, "far/a: ns/c added")
		server.Put(annotate("b")) // a cluster-scoped owner
		q.expect(t, "b: ns/c updated", "far/a: ns/c updated")
		if seen.Namespace != "ns" || seen.Name != "c" || seen.ResourceVersion == "" || seen.Labels["l"] != "v" ||
			len(seen.Finalizers) != 1 || len(seen.OwnerReferences) != 1 {
			t.Errorf("the child is shown as %v", seen)
		}
		finished := annotate("b")
		finished.Finalizers = nil
		server.Put(finished)
		q.expect(t, "b: ns/c updated")
		server.Delete(key("c"))
		q.expect(t, "b: ns/c deleted")
	})
}

func TestOwnedEnqueuesOldAndNewOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(child("c", by("a")))
		q, stop := start(t, source.OwnedIn(newInformer(t, server), source.Owner{Kind: website()}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
		server.Put(child("c", by("b")))
		q.expect(t, "ns/a: ns/c updated", "ns/b: ns/c updated")
		server.Put(child("c"))
		q.expect(t, "ns/b: ns/c updated")
		server.Put(child("c", by("a")))
		q.expect(t, "ns/a: ns/c updated")
	})
}

func TestOwnedSelectsReferences(t *testing.T) {
	t.Parallel()
	reference := func(apiVersion, kind, name string, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "u", Controller: controller}
	}
	references := []metav1.OwnerReference{
		reference("example.com/v1", "Website", "ours", new(true)),
		reference("example.com/v2beta1", "Website", "other-version", nil),
		reference("example.com/v1", "Website", "not-the-controller", new(false)),
		reference("example.org/v1", "Website", "other-group", new(true)),
		reference("example.com/v1", "WebsiteSet", "other-kind", new(true)),
		reference("v1", "Node", "node-1", new(true)),
	}
	for name, test := range map[string]struct {
		owner source.Owner
		want  []string
	}{
		"the controller": {source.Owner{Kind: website()}, []string{"ns/ours"}},
		"any": {
			source.Owner{Kind: website(), Any: true},
			[]string{"ns/not-the-controller", "ns/other-version", "ns/ours"},
		},
		"the controller's kind": {source.Owner{}, []string{"ns/ours"}},
		"of the core group":     {source.Owner{Kind: schema.GroupKind{Kind: "Node"}}, []string{"ns/node-1"}},
		"nobody of that kind":   {source.Owner{Kind: schema.GroupKind{Group: "example.com", Kind: "website"}}, nil},
		"nobody of that group":  {source.Owner{Kind: schema.GroupKind{Kind: "Website"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				for _, r := range references {
					server.Put(child("of-"+r.Name, r)) // an object has one controller
				}
				q, stop := start(t, source.OwnedIn(newInformer(t, server), test.owner))
				defer stop()
				var want []string
				for _, key := range test.want {
					want = append(want, key+": ns/of-"+strings.TrimPrefix(key, "ns/")+" listed")
				}
				q.expect(t, want...)
			})
		})
	}
}

// An owner reference with another version of the owner's API group identifies the same owner.
func TestOwnedIgnoresVersionOfReference(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		older := by("a")
		older.APIVersion = "example.com/v1alpha1"
		server.Put(child("c", older))
		q, stop := start(t, source.OwnedIn(newInformer(t, server), source.Owner{Kind: website()}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
	})
}

func TestOwnedOfMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(child("c", by("a")))
		view, err := informer.As[*metav1.PartialObjectMetadata](newInformer(t, server))
		if err != nil {
			t.Fatal(err)
		}
		q, stop := start(t, source.OwnedIn(view, source.Owner{Kind: website()}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
	})
}

func TestOwnerLabelEnqueuesOwnerOfLabel(t *testing.T) {
	t.Parallel()
	const label = "example.com/website"
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Put(labeled("c", map[string]string{label: "a", "app": "web"}))
		server.Put(labeled("nobodys", map[string]string{"app": "web"}))
		server.Put(labeled("empty", map[string]string{label: ""}))
		q, stop := start(t, source.OwnerLabel(newInformer(t, server), label))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
		server.Put(labeled("c", map[string]string{label: "b"}))
		q.expect(t, "ns/a: ns/c updated", "ns/b: ns/c updated")
		server.Put(labeled("c", map[string]string{label: "b", "app": "api"}))
		q.expect(t, "ns/b: ns/c updated")
		server.Put(labeled("c", nil))
		q.expect(t, "ns/b: ns/c updated")
		server.Put(labeled("d", map[string]string{label: "a"}))
		q.expect(t, "ns/a: ns/d added")
		server.Delete(key("d"))
		q.expect(t, "ns/a: ns/d deleted")
	})
}

func TestPredicatesFilterSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(child("c", by("a")))
		s := source.OwnedIn(newInformer(t, server), source.Owner{Kind: website()},
			predicate.Types(informer.Added, informer.Updated, informer.Deleted), predicate.Changed(kube.ChangedLabels))
		q, stop := start(t, s)
		defer stop()
		q.expect(t) // listed
		annotated := child("c", by("a"))
		annotated.Annotations = map[string]string{"x": "y"}
		server.Put(annotated)
		q.expect(t)
		annotated.Labels = map[string]string{"x": "y"}
		server.Put(annotated)
		q.expect(t, "ns/a: ns/c updated")
		server.Delete(key("c"))
		q.expect(t, "ns/a: ns/c deleted")
	})
}

// notRegistered is a type that is not registered in any scheme.
type notRegistered struct{ corev1.ConfigMap }

func (n *notRegistered) DeepCopyObject() runtime.Object {
	return &notRegistered{*n.DeepCopy()}
}

func TestValidateReportsEveryMistake(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	objects := newInformer(t, newServer())
	owner := source.Owner{Kind: website()}
	keys := func(configMap) []kube.Key { return nil }
	for name, test := range map[string]struct {
		source controller.Source
		want   []string // parts of the error; empty: the source is valid
	}{
		"Owned":               {source.Owned[configMap](cluster), nil},
		"OwnedIn":             {source.OwnedIn(objects, owner, predicate.Changed(kube.ChangedLabels)), nil},
		"OwnerLabel":          {source.OwnerLabel(objects, "website"), nil},
		"Mapped":              {source.Mapped(objects, keys), nil},
		"no informer":         {source.OwnedIn(nil, owner), []string{"source owned: the informer is required"}},
		"an informer of nil":  {source.OwnedIn((*informer.Informer[configMap])(nil), owner), []string{"the informer is required"}},
		"nothing at all":      {source.OwnedIn(nil, source.Owner{Kind: schema.GroupKind{Group: "a/b", Kind: "X"}}, nil), []string{"the informer is required", "without its version", "predicate 0 is nil"}},
		"the default kind":    {source.OwnedIn(objects, source.Owner{}), nil},
		"a version":           {source.OwnedIn(objects, source.Owner{Kind: schema.GroupKind{Group: "apps/v1", Kind: "X"}}), []string{`"apps/v1"`, "without its version"}},
		"no cluster":          {source.Owned[configMap](nil), []string{"source owned: ", "the cluster is nil"}},
		"an unknown type":     {source.Owned[*notRegistered](cluster), []string{"find the kind of *source_test.notRegistered", "AddToScheme"}},
		"no label":            {source.OwnerLabel(objects, ""), []string{"source owner label: the label is required"}},
		"no possible label":   {source.OwnerLabel(objects, "app=web"), []string{`no object can have the label "app=web"`}},
		"no label's informer": {source.OwnerLabel(nil, "app"), []string{"the informer is required"}},
		"Mapped of nothing":   {source.Mapped[configMap](nil, nil), []string{"source mapped: ", "the informer is required", "the function is required"}},
		"Mapped, no function": {source.Mapped(objects, nil), []string{"source mapped: the function is required"}},
		"OwnedBy":             {source.OwnedBy(objects, annotated, predicate.Changed(kube.ChangedLabels)), nil},
		"OwnedBy of nothing":  {source.OwnedBy(nil, nil), []string{"source owned: ", "the informer is required", "the function is required"}},
		"a nil predicate":     {source.Mapped(objects, keys, predicate.Changed(kube.ChangedLabels), nil), []string{"predicate 1 is nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errtest.Expect(t, validate(test.source), test.want...)
		})
	}
}

func TestControllerRejectsInvalidSource(t *testing.T) {
	t.Parallel()
	_, err := controller.New(controller.Config[configMap]{
		Name: "test", Retriever: newServer(),
		Handler: func(context.Context, configMap) error { return nil },
		Sources: []controller.Source{source.OwnedIn(nil, source.Owner{})},
	})
	if err == nil || !strings.Contains(err.Error(), "Sources[0]") || !strings.Contains(err.Error(), "the informer is required") {
		t.Errorf("New: %v", err)
	}
}

// A controller of objects without a known kind must name the owner's kind.
func TestOwnedRequiresKindOfOwner(t *testing.T) {
	t.Parallel()
	_, err := source.OwnedIn(newInformer(t, newServer()), source.Owner{}).Prepare(controller.Target{Controller: "test", Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "source owned: Owner.Kind is required") {
		t.Errorf("Prepare: %v", err)
	}
}

// Controllers share the informer that Owned creates, so it logs to the connection's logger and reports to its metrics.
func TestOwnedUsesLoggerAndMetricsOfCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, syscall.ECONNREFUSED
		}})
		if err != nil {
			t.Fatal(err)
		}
		var log logBuffer
		metrics := make(observedInformers, 1)
		cluster.SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
		apiobject.ObserversOf(cluster).SetMetrics(metrics, nil)
		prepared, err := source.Owned[configMap](cluster).Prepare(controller.Target{
			Controller: "websites", Kind: website().WithVersion("v1"), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		leave := prepared.Reads[0].Join(t.Context())
		if name := <-metrics; name != "ConfigMap" {
			t.Errorf("metrics of informer %q, want ConfigMap", name)
		}
		time.Sleep(time.Second)
		leave()
		if !strings.Contains(log.String(), "connection refused") {
			t.Errorf("the failed list is not logged: %s", log.String())
		}
	})
}

// observedInformers is an informer.Recorder that sends the names of informers.
type observedInformers chan string

func (o observedInformers) ObserveInformer(name string, _ func() informer.Health) (stop func()) {
	o <- name
	return func() {}
}

// The informer that Owned creates is named after the kind.
func TestOwnedReadsMetadataOfKind(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "https://api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	reads := prepare(t, source.Owned[configMap](cluster)).Reads
	if len(reads) != 1 {
		t.Fatalf("it reads %d informers", len(reads))
	}
	objects, ok := reads[0].(*informer.Informer[*metav1.PartialObjectMetadata])
	if !ok || objects.Name() != "ConfigMap" || objects.Health().Optional {
		t.Errorf("it reads a %T", reads[0])
	}
}
