package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A caller that ignores a missing object must not ignore that an object was never created.
func TestMissingNamespaceIsNotReportedAsMissingObject(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	kind := define(t, c, "Boat", "boats", true, "")
	for name, err := range map[string]error{
		"typed":        first(client.Create(t.Context(), c, configMap("no-such-namespace", "a", nil))),
		"unstructured": first(client.Create(t.Context(), c, object(kind, "no-such-namespace", "a", 1))),
	} {
		if !errors.Is(err, client.ErrNoNamespace) || errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) == nil || !apierrors.IsNotFound(err) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if err := first(client.Get[*corev1.Namespace](t.Context(), c, kube.Key{Name: "no-such-namespace"})); !errors.Is(err, client.ErrGone) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	if err := first(client.Get[*corev1.ConfigMap](t.Context(), c, kube.Key{Namespace: namespace, Name: "none"})); !errors.Is(err, client.ErrGone) {
		t.Errorf("an object that is not there: %v", err)
	}
	unknown := schema.GroupVersionKind{Group: "client.example.com", Version: "v1", Kind: "Unknown"}
	if err := first(client.All[*unstructured.Unstructured](t.Context(), c, kube.Selection{Kind: unknown})); !errors.Is(err, kube.ErrNotServed) || client.IgnoreNotFound(err) == nil {
		t.Errorf("a kind that is not there: %v", err)
	}
}

// barge is a Go type that declares its scope.
type barge struct{ metav1.PartialObjectMetadata }

func (f *barge) DeepCopyObject() runtime.Object {
	return &barge{*f.PartialObjectMetadata.DeepCopyObject().(*metav1.PartialObjectMetadata)}
}

func (*barge) NamespaceScoped() bool { return true }

// TestDeclaredScopeIsComparedWithDefinition: the Go type declares the scope of one definition, and not that of another.
func TestDeclaredScopeIsComparedWithDefinition(t *testing.T) {
	t.Parallel()
	config, setup, namespace := setUp(t)
	right := define(t, setup, "Barge", "barges", true, "")
	wrong := define(t, setup, "Raft", "rafts", false, "")
	must(client.Create(t.Context(), setup, object(right, namespace, "a", 1)))(t)
	c := clustertest.Client(t, clustertest.Connect(t, config, func(scheme *runtime.Scheme) error {
		for _, kind := range []schema.GroupVersionKind{right, wrong} {
			scheme.AddKnownTypeWithName(kind, &barge{})
		}
		return nil
	}))
	found := must(client.Get[*barge](t.Context(), c, kube.Key{Namespace: namespace, Name: "a"}, client.OfKind(right)))(t)
	if found.Name != "a" || found.UID == "" {
		t.Errorf("it is %+v", found)
	}
	ctx, calls := observe(t)
	_, err := client.Get[*barge](ctx, c, kube.Key{Name: "a"}, client.OfKind(right))
	if err == nil || !strings.Contains(err.Error(), "has no namespace") {
		t.Errorf("without a namespace: %v", err)
	}
	_, err = client.Get[*barge](ctx, c, kube.Key{Namespace: namespace, Name: "a"}, client.OfKind(wrong))
	if err == nil || errors.Is(err, client.ErrGone) || !strings.Contains(err.Error(), "Raft in client.example.com/v1 is cluster-scoped in the cluster") {
		t.Errorf("another scope: %v", err)
	}
	if requests := calls.Take(); requests != nil {
		t.Errorf("the calls are %q", requests)
	}
}

// The scope of the kind was discovered before.
func TestContract32_ScopeMistakesMakeNoRequest(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	only := with(t, c, func(config *client.Config) { config.Namespace = namespace })
	ctx, calls := observe(t)
	for i, err := range []error{
		first(client.Get[*corev1.Pod](ctx, c, kube.Key{Name: "p"})),
		first(client.Get[*corev1.Node](ctx, c, kube.Key{Namespace: namespace, Name: "n"})),
		first(client.Create(ctx, c, pod("", "p"))),
		client.Delete(ctx, c, pod("", "p")),
		client.DeleteAllOf[*corev1.Pod](ctx, c, kube.Selection{}),
		first(client.All[*corev1.Namespace](ctx, only, kube.Selection{})),
		first(client.Watch[*corev1.Node](ctx, only, kube.Selection{})),
		first(client.Get[*corev1.Pod](ctx, only, kube.Key{Namespace: "default", Name: "p"})),
	} {
		if err == nil {
			t.Errorf("mistake %d is none", i)
		}
	}
	if requests := calls.Take(); requests != nil {
		t.Errorf("calls were made: %q", requests)
	}
	must(client.Create(t.Context(), c, configMap(namespace, "here", nil)))(t)
	for _, obj := range must(client.All[*corev1.ConfigMap](ctx, only, kube.Selection{}))(t) {
		if obj.Namespace != namespace {
			t.Errorf("a client for %s has listed %s", namespace, kube.KeyOf(obj))
		}
	}
	if requests := calls.Take(); !slices.Equal(requests, []string{"list configmaps " + namespace + "/"}) {
		t.Errorf("the calls are %q", requests)
	}
}
