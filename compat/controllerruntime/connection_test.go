package controllerruntime_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
)

// Each form is readable, whatever content types the program has set for its connection.
func TestReadsWithContentTypesOfConnection(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]rest.ContentConfig{
		"none":            {},
		"protobuf bodies": {ContentType: runtime.ContentTypeProtobuf},
		"JSON bodies":     {ContentType: runtime.ContentTypeJSON},
		"protobuf first":  {AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
		"protobuf only":   {AcceptContentTypes: runtime.ContentTypeProtobuf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				config := w.server.RESTConfig("operator")
				config.AcceptContentTypes, config.ContentType = content.AcceptContentTypes, content.ContentType
				var err error
				w.cache, err = controllerruntime.NewCache(config, cache.Options{})
				w.must(err)
				w.create(configMap("shop", "a"))
				defer w.start()()
				kind := metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
				for _, obj := range []client.Object{
					&corev1.ConfigMap{}, &metav1.PartialObjectMetadata{TypeMeta: kind},
					&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}},
				} {
					if err := w.cache.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, obj); err != nil {
						w.Errorf("%T: %v", obj, err)
					}
				}
			})
		})
	}
}

// A Go type that is registered for two kinds is read as the one that the object names.
func TestReadsOfTypeWithSeveralKinds(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	for _, kind := range []string{"ConfigMap", "Secret"} {
		scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind(kind), &named{})
		scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind(kind+"List"), &namedList{})
	}
	inBubble(t, cache.Options{Scheme: scheme}, func(w *world) {
		w.create(configMap("shop", "settings"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "password"}})
		defer w.start()()
		for kind, name := range map[string]string{"ConfigMap": "settings", "Secret": "password"} {
			obj := &named{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
			w.must(w.cache.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: name}, obj))
			if obj.Kind != kind || obj.Name != name {
				w.Errorf("read %s %s, want %s %s", obj.Kind, obj.Name, kind, name)
			}
			inf, err := w.cache.GetInformerForKind(w.Context(), corev1.SchemeGroupVersion.WithKind(kind))
			if err != nil || !inf.HasSynced() {
				w.Errorf("the informer of %s: %v", kind, err)
			}
		}
	})
}

// named is an object of several kinds.
type named struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
}

func (n *named) DeepCopyObject() runtime.Object {
	return &named{n.TypeMeta, *n.ObjectMeta.DeepCopy()}
}

type namedList struct {
	metav1.TypeMeta
	metav1.ListMeta `json:"metadata"`
	Items           []named `json:"items"`
}

func (l *namedList) DeepCopyObject() runtime.Object {
	list := &namedList{l.TypeMeta, l.ListMeta, nil}
	for i := range l.Items {
		list.Items = append(list.Items, *l.Items[i].DeepCopyObject().(*named))
	}
	return list
}

// Selectors that have no text, or another meaning as a text, select as controller-runtime's cache does.
func TestListsBySelectorsWithoutText(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		w.create(configMap("shop", "a", "x", "4"), configMap("shop", "b", "x", "4", "y", "v"))
		defer w.start()()
		for name, tc := range map[string]struct {
			option client.ListOption
			want   int
		}{
			"a value with a space":      {client.MatchingLabels{"x": "my value"}, 0},
			"a value of several":        {client.MatchingLabels{"x": "4,y=v"}, 0},
			"a key with a space":        {client.MatchingLabels{"a b": "c"}, 0},
			"nothing":                   {client.MatchingLabelsSelector{Selector: labels.Nothing()}, 0},
			"everything":                {client.MatchingLabelsSelector{Selector: labels.Everything()}, 1},
			"a type of the program":     {client.MatchingLabelsSelector{Selector: withoutText{labels.SelectorFromSet(labels.Set{"y": "v"})}}, 1},
			"the usual one, as control": {client.MatchingLabels{"x": "4", "y": "v"}, 1},
		} {
			var list corev1.ConfigMapList
			if err := w.cache.List(w.Context(), &list, tc.option, client.Limit(1)); err != nil || len(list.Items) != tc.want {
				w.Errorf("%s: %d objects, error %v", name, len(list.Items), err)
			}
		}
	})
}

type withoutText struct{ labels.Selector }

func (withoutText) String() string { return "" }

// A list by an index whose function fails is an error, never a shorter list.
func TestListByIndexThatFails(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		w.create(configMap("shop", "a"), configMap("shop", "b", "broken", "yes"))
		w.must(w.cache.IndexField(w.Context(), &corev1.ConfigMap{}, "name", func(obj client.Object) []string {
			if obj.GetLabels()["broken"] != "" {
				panic("no values")
			}
			return []string{obj.GetName()}
		}))
		defer w.start()()
		var list corev1.ConfigMapList
		err := w.cache.List(w.Context(), &list, client.MatchingFields{"name": "a"})
		if err == nil || !strings.Contains(err.Error(), "shop/b") || !strings.Contains(err.Error(), "no values") {
			w.Errorf("%d objects, error %v", len(list.Items), err)
		}
		w.must(w.cache.List(w.Context(), &list))
		if len(list.Items) != 2 {
			w.Errorf("%d objects", len(list.Items))
		}
	})
}
