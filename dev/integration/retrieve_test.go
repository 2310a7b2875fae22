package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	modulecache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// counting is a Retriever that wraps another one, as users write them.
type counting[T kube.Object] struct {
	informer.Retriever[T]
	lists, watches atomic.Int32
}

func (c *counting[T]) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	c.lists.Add(1)
	return c.Retriever.List(ctx, opts)
}

func (c *counting[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c.watches.Add(1)
	return c.Retriever.Watch(ctx, opts)
}

// story tests one representation of ConfigMaps with a list, a create, an update and a delete.
func story[T kube.Object](t *testing.T, e env, retriever informer.Retriever[T], value func(T) string) {
	t.Helper()
	e.putConfigMap("a", "1")
	var s seen
	ctrl, _ := run(t, controller.Config[T]{
		Name: "story", Retriever: retriever, ResyncInterval: -1,
		Handler: func(_ context.Context, obj T) error {
			s.add(obj.GetName(), value(obj))
			return nil
		},
	})
	eventually(t, func() string { return s.lacks(map[string]string{"a": "1"}) })
	if err := ctrl.Ready(); err != nil {
		t.Error(err)
	}
	e.putConfigMap("b", "1")
	e.putConfigMap("a", "2")
	eventually(t, func() string { return s.lacks(map[string]string{"a": "2", "b": "1"}) })
	if err := e.clients.CoreV1().ConfigMaps(e.namespace).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if modulecache.Of(ctrl.Informer()).Has(kube.Key{Namespace: e.namespace, Name: "b"}) {
			return "b is still in the cache"
		}
		return ""
	})
}

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func TestRetrieveTyped(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := &counting[*corev1.ConfigMap]{Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connect(t, local.RESTConfig()),
		kube.Selection{Namespaces: []string{e.namespace}})}
	story(t, e, r, func(m *corev1.ConfigMap) string { return m.Data["value"] })
	if r.lists.Load() != 0 || r.watches.Load() != 1 {
		t.Errorf("%d lists and %d watches, want one streamed list (KEP-3157)", r.lists.Load(), r.watches.Load())
	}
}

func TestRetrieveUnstructured(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	story(t, e, informer.RetrieveSelected[*unstructured.Unstructured](connect(t, local.RESTConfig()),
		kube.Selection{Kind: configMapKind, Namespaces: []string{e.namespace}}),
		func(u *unstructured.Unstructured) string {
			value, _, _ := unstructured.NestedString(u.Object, "data", "value")
			return value
		})
}

func TestRetrieveMetadataOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	story(t, e, informer.RetrieveSelected[*metav1.PartialObjectMetadata](connect(t, local.RESTConfig()),
		kube.Selection{Kind: configMapKind, Namespaces: []string{e.namespace}}),
		func(m *metav1.PartialObjectMetadata) string { return m.Labels["value"] })
}

func TestRetrieveFromListerWatcher(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	maps := must(kubernetes.NewForConfig(local.RESTConfig()))(t).CoreV1().ConfigMaps(e.namespace)
	story(t, e, informer.FromListerWatcher[*corev1.ConfigMap](&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return maps.List(ctx, opts)
		},
		WatchFuncWithContext: maps.Watch,
	}), func(m *corev1.ConfigMap) string { return m.Data["value"] })
}

// Widget is a typed custom resource.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec `json:"spec"`
}

// WidgetSpec is the desired state of a Widget.
type WidgetSpec struct {
	Value string `json:"value"`
}

// DeepCopyObject implements runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// WidgetList is a list of Widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Widget `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Widget)
	}
	return &c
}

func addWidgets(scheme *runtime.Scheme) error {
	gv := widgets.GroupVersion()
	scheme.AddKnownTypes(gv, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}

func (e env) putWidget(resource, kind, name, value string) {
	e.Helper()
	r := widgets
	r.Resource = resource
	must(e.dynamic.Resource(r).Namespace(e.namespace).Create(e.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value},
	}}, metav1.CreateOptions{}))(e.T)
}

func TestSmokeRetrieveCustomResources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	defer e.createCRD("Widget")()
	e.putWidget("widgets", "Widget", "w", "1")
	cluster := must(kube.Connect(local.RESTConfig(), addWidgets))(t)
	defer cluster.HTTPClient().CloseIdleConnections()

	var typed, raw seen
	_, stopTyped := run(t, controller.Config[*Widget]{
		Name: "typed", Retriever: informer.Retrieve[*Widget](cluster),
		Handler: func(_ context.Context, w *Widget) error {
			typed.add(w.Name, w.Spec.Value)
			return nil
		},
	})
	_, stopRaw := run(t, controller.Config[*unstructured.Unstructured]{
		Name:      "unstructured",
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: widgets.GroupVersion().WithKind("Widget")}),
		Handler: func(_ context.Context, u *unstructured.Unstructured) error {
			value, _, _ := unstructured.NestedString(u.Object, "spec", "value")
			raw.add(u.GetName(), value)
			return nil
		},
	})
	defer stopTyped()
	defer stopRaw()
	eventually(t, func() string {
		return typed.lacks(map[string]string{"w": "1"}) + raw.lacks(map[string]string{"w": "1"})
	})
	e.putWidget("widgets", "Widget", "later", "2")
	want := map[string]string{"w": "1", "later": "2"}
	eventually(t, func() string { return typed.lacks(want) + raw.lacks(want) })
}

func TestRetrieveSelected(t *testing.T) {
	t.Parallel()
	first, second, third := newEnv(t), newEnv(t), newEnv(t)
	for _, e := range []env{first, second, third} {
		e.putConfigMap("one", "1")
		e.putConfigMap("two", "2")
	}
	cluster := connect(t, local.RESTConfig())
	for name, test := range map[string]struct {
		selection kube.Selection
		want      map[string]string
	}{
		"namespaces": {
			kube.Selection{Namespaces: []string{first.namespace, second.namespace, first.namespace}},
			map[string]string{
				first.namespace + "/one": "1", first.namespace + "/two": "2",
				second.namespace + "/one": "1", second.namespace + "/two": "2",
			},
		},
		"labels": {
			kube.Selection{Namespaces: []string{first.namespace}, LabelSelector: "value in (2,3)"},
			map[string]string{first.namespace + "/two": "2"},
		},
		"fields": {
			kube.Selection{Namespaces: []string{first.namespace}, FieldSelector: "metadata.name=one"},
			map[string]string{first.namespace + "/one": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s seen
			run(t, controller.Config[*corev1.ConfigMap]{
				Name: name, Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, test.selection),
				Handler: func(_ context.Context, m *corev1.ConfigMap) error {
					s.add(kube.KeyOf(m).String(), m.Data["value"])
					return nil
				},
			})
			eventually(t, func() string { return s.lacks(test.want) })
		})
	}
}

// An object that stops matching the selection is removed from the cache, and one that starts matching is added.
func TestSelectionFollowsLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("a", "in")
	var s seen
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "labels",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connect(t, local.RESTConfig()),
			kube.Selection{Namespaces: []string{e.namespace}, LabelSelector: "value=in"}),
		Handler: func(_ context.Context, m *corev1.ConfigMap) error {
			s.add(m.Name, m.Labels["value"])
			return nil
		},
	})
	eventually(t, func() string { return s.lacks(map[string]string{"a": "in"}) })
	e.putConfigMap("b", "out")
	e.putConfigMap("b", "in")
	e.putConfigMap("a", "out")
	eventually(t, func() string {
		if n := ctrl.Informer().Len(); n != 1 || !modulecache.Of(ctrl.Informer()).Has(kube.Key{Namespace: e.namespace, Name: "b"}) {
			return "the cache does not hold just b"
		}
		return s.lacks(map[string]string{"a": "in", "b": "in"})
	})
}

func TestSmokeRetrieveErrors(t *testing.T) {
	t.Parallel()
	cluster := connect(t, local.RESTConfig())
	newInformer := func(err error) string {
		if err == nil {
			return "no error"
		}
		return err.Error()
	}
	for name, test := range map[string]struct{ got, want string }{
		"type not registered": {newInformer(second(informer.New(informer.Config[*Widget]{Retriever: informer.Retrieve[*Widget](cluster)}))), "AddToScheme"},
		"kind missing": {newInformer(second(informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: informer.Retrieve[*unstructured.Unstructured](cluster),
		}))), "set Selection.Kind"},
		"both selectors": {newInformer(second(informer.New(informer.Config[*corev1.Pod]{
			Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{LabelSelector: "a=(", FieldSelector: "=,x", Namespaces: []string{"", "b"}}),
		}))), `label selector "a=("`},
		"other kind": {newInformer(second(informer.New(informer.Config[*corev1.Pod]{
			Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Kind: configMapKind}),
		}))), "Selection.Kind says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(test.got, test.want) {
				t.Errorf("got %q, want %q in it", test.got, test.want)
			}
		})
	}
	t.Run("namespaces of a cluster-scoped kind", func(t *testing.T) {
		t.Parallel()
		ctrl, _ := run(t, controller.Config[*corev1.Node]{
			Name:      "nodes",
			Retriever: informer.RetrieveSelected[*corev1.Node](cluster, kube.Selection{Namespaces: []string{"default"}}),
			Handler:   func(context.Context, *corev1.Node) error { return nil },
		})
		eventually(t, func() string {
			if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "cluster-scoped") {
				return cmp.Diff("cluster-scoped", newInformer(err))
			}
			return ""
		})
	})
}

func second[A, B any](_ A, b B) B { return b }
