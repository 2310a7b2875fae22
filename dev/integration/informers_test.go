package integration

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// requests writes down the lists and watches of a resource that a config makes.
type requests struct {
	resource string

	mu      sync.Mutex
	watches []string // the Accept headers
	paths   []string // of the watches
	lists   int
}

// count makes config write down its requests for resource.
func count(config *rest.Config, resource string) *requests {
	r := &requests{resource: resource}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return roundTripper{r, inner} })
	return r
}

func (r *requests) seen() (watches []string, lists int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.watches), r.lists
}

// watchesOf returns how many of the watches were of a namespace.
func (r *requests) watchesOf(namespace string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range r.paths {
		if strings.Contains(path, "/namespaces/"+namespace+"/") {
			n++
		}
	}
	return n
}

type roundTripper struct {
	*requests
	inner http.RoundTripper
}

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/"+r.resource) {
		r.mu.Lock()
		if request.URL.Query().Get("watch") == "true" {
			r.watches = append(r.watches, request.Header.Get("Accept"))
			r.paths = append(r.paths, request.URL.Path)
		} else {
			r.lists++
		}
		r.mu.Unlock()
	}
	return r.inner.RoundTrip(request)
}

// newInformer makes an informer of what a user of config sees, and runs it until the test ends.
func newInformer[T kube.Object](t *testing.T, config informer.Config[T]) *informer.Informer[T] {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	inf := must(informer.New(config))(t)
	t.Cleanup(inf.Join(context.WithoutCancel(t.Context())))
	return inf
}

func waitSynced(t *testing.T, inf informer.Any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := inf.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestViewsOfOneInformerShareItsWatch(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "1")
	config := local.RESTConfig()
	asked := count(config, "configmaps")
	typed := newInformer(t, informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connect(t, config), kube.Selection{Namespaces: []string{e.namespace}}),
	})
	metadata := must(informer.As[*metav1.PartialObjectMetadata](typed))(t)
	dynamic := must(informer.As[*unstructured.Unstructured](typed))(t)
	var handled, seenMetadata, seenDynamic seen
	run(t, controller.Config[*corev1.ConfigMap]{Name: "typed", Informer: typed, Handler: func(_ context.Context, m *corev1.ConfigMap) error { handled.add(m.Name, m.Data["value"]); return nil }})
	run(t, controller.Config[*metav1.PartialObjectMetadata]{Name: "metadata", Informer: metadata, Handler: func(_ context.Context, m *metav1.PartialObjectMetadata) error {
		seenMetadata.add(m.Name, m.Labels["value"])
		return nil
	}})
	run(t, controller.Config[*unstructured.Unstructured]{Name: "dynamic", Informer: dynamic, Handler: func(_ context.Context, u *unstructured.Unstructured) error {
		value, _, _ := unstructured.NestedString(u.Object, "data", "value")
		seenDynamic.add(u.GetName(), value)
		return nil
	}})
	everybodySaw := func(want map[string]string) {
		t.Helper()
		eventually(t, func() string { return handled.lacks(want) + seenMetadata.lacks(want) + seenDynamic.lacks(want) })
	}
	everybodySaw(map[string]string{"a": "1"})
	e.putConfigMap("b", "1")
	e.putConfigMap("a", "2")
	everybodySaw(map[string]string{"a": "2", "b": "1"})
	watches, lists := asked.seen()
	if len(watches) != 1 || lists != 0 || !strings.Contains(watches[0], "protobuf") {
		t.Errorf("%d lists and watches %q; want one streamed list, by protobuf", lists, watches)
	}

	// What is read through each view is what a list returns.
	key := kube.Key{Namespace: e.namespace, Name: "a"}
	want := must(e.clients.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "a", metav1.GetOptions{}))(t)
	want.ManagedFields = nil
	got, _, err := typed.Get(key)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("typed: %v (-API +informer):\n%s", err, diff)
	}
	wantDynamic := must(e.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(e.namespace).Get(t.Context(), "a", metav1.GetOptions{}))(t)
	wantDynamic.SetManagedFields(nil)
	gotDynamic, _, err := dynamic.Get(key)
	if diff := cmp.Diff(wantDynamic.Object, gotDynamic.Object); diff != "" || err != nil {
		t.Errorf("unstructured: %v (-API +informer):\n%s", err, diff)
	}
	gotMetadata, _, err := metadata.Get(key)
	if diff := cmp.Diff(want.ObjectMeta, gotMetadata.ObjectMeta); diff != "" || err != nil || gotMetadata.Kind != "ConfigMap" {
		t.Errorf("metadata: %v (-API +informer):\n%s", err, diff)
	}
	if n, err := typed.Count(informer.Query{Labels: labels.SelectorFromSet(labels.Set{"value": "2"})}); n != 1 || err != nil {
		t.Errorf("%d objects by label, %v", n, err)
	}
}

func TestInformerHealth(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i := range 100 {
		e.putConfigMap(fmt.Sprintf("m%d", i), strings.Repeat("x", 50))
	}
	inf := newInformer(t, informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connect(t, local.RESTConfig()), kube.Selection{Namespaces: []string{e.namespace}}),
	})
	waitSynced(t, inf)
	h := inf.Health()
	version, err := strconv.ParseInt(h.ResourceVersion, 10, 64)
	if err != nil || h.Objects != 100 || h.Received < 10_000 || h.Bytes < 5_000 || h.Decoded != 0 || h.LastEvent.IsZero() {
		t.Errorf("after the first list: %+v, %v", h, err)
	}
	e.putConfigMap("m0", "changed")
	eventually(t, func() string {
		now := inf.Health()
		if reached, err := strconv.ParseInt(now.ResourceVersion, 10, 64); err != nil || reached <= version || now.Received <= h.Received {
			return fmt.Sprintf("after a change: %+v", now)
		}
		return ""
	})
	for _, err := range inf.List(informer.Query{}) {
		if err != nil {
			t.Error(err)
		}
	}
	if h := inf.Health(); h.Decoded != 100 || h.DecodeTime <= 0 {
		t.Errorf("after all were read: %+v", h)
	}
}

func TestNamespacesAddedAndRemovedDuringRun(t *testing.T) {
	t.Parallel()
	first, second := newEnv(t), newEnv(t)
	first.putConfigMap("a", "1")
	second.putConfigMap("b", "1")
	config := must(local.User(t.Context(), "mover-"+first.namespace, "movers-"+first.namespace))(t)
	asked := count(config, "configmaps")
	cluster := connect(t, config)
	first.allow("movers-" + first.namespace)
	retrieve := func(namespaces ...string) informer.Retriever[*corev1.ConfigMap] {
		return informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: namespaces})
	}
	inf := newInformer(t, informer.Config[*corev1.ConfigMap]{Name: "moving", Retriever: retrieve(first.namespace)})
	waitSynced(t, inf)
	watchesBefore := asked.watchesOf(first.namespace)

	if err := inf.SetRetriever(t.Context(), retrieve(first.namespace, second.namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if err := inf.Ready(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), second.namespace) || inf.Len() != 1 {
			return fmt.Sprintf("with a namespace that is forbidden: %d objects, Ready %v", inf.Len(), err)
		}
		return ""
	})
	second.allow("movers-" + first.namespace)
	eventually(t, func() string {
		if err := inf.Ready(); err != nil || inf.Len() != 2 {
			return fmt.Sprintf("with both namespaces: %d objects, Ready %v", inf.Len(), err)
		}
		return ""
	})
	if err := inf.SetRetriever(t.Context(), retrieve(second.namespace)); err != nil {
		t.Fatal(err)
	}
	if inf.Len() != 1 || !cache.Of(inf).Has(kube.Key{Namespace: second.namespace, Name: "b"}) {
		t.Errorf("with the second namespace alone: %d objects", inf.Len())
	}
	second.putConfigMap("b", "2")
	eventually(t, func() string {
		obj, _, err := inf.Get(kube.Key{Namespace: second.namespace, Name: "b"})
		if err != nil || obj.Data["value"] != "2" {
			return fmt.Sprint(obj, err)
		}
		return ""
	})
	if n := asked.watchesOf(first.namespace) - watchesBefore; n > 0 {
		t.Errorf("%d watches of the first namespace were asked for: the one that there was should have gone on", n)
	}
}

// allow lets a group read the ConfigMaps of the namespace.
func (e env) allow(group string) {
	e.Helper()
	must(e.clients.RbacV1().Roles(e.namespace).Create(e.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{}))(e.T)
	must(e.clients.RbacV1().RoleBindings(e.namespace).Create(e.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
	}, metav1.CreateOptions{}))(e.T)
}
