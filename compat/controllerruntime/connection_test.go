package controllerruntime_test

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
				w.cache = w.newCache(config, cache.Options{})
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

// An index function that fails makes only lists by that index fail, with an error instead of a shorter list.
func TestFailingIndexFunction(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		b := configMap("shop", "b", "broken", "yes")
		w.create(configMap("shop", "a"), b)
		w.must(w.cache.IndexField(w.Context(), b, "color", colorOf))
		w.must(w.cache.IndexField(w.Context(), b, "name", func(obj client.Object) []string {
			if obj.GetLabels()["broken"] != "" {
				panic("no values")
			}
			return []string{obj.GetName()}
		}))
		l, _ := w.follow()
		defer w.start()()
		events := l.take()
		slices.Sort(events)
		if want := []string{"add a red true", "add b red true"}; !slices.Equal(events, want) {
			w.Errorf("events %q, want %q", events, want)
		}
		w.paint(b, "blue")
		w.wantEvents(l, "update b red to blue")
		for _, fields := range []client.MatchingFields{{"name": "a"}, {"color": "blue", "name": "b"}} {
			err := w.cache.List(w.Context(), &corev1.ConfigMapList{}, fields)
			wantError(w, err, "the index function panicked: no values")
		}
		err := w.cache.List(w.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"name": "a"})
		wantError(w, err, "list by index field:name: the values of shop/b: ")
		w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(b), &corev1.ConfigMap{}))
		w.wantList(w.cache, []string{"shop/a", "shop/b"})
		w.wantList(w.cache, []string{"shop/b"}, client.MatchingFields{"color": "blue"})
		b.Labels = nil
		w.paint(b, "green")
		w.wantEvents(l, "update b blue to green")
		w.wantList(w.cache, []string{"shop/b"}, client.MatchingFields{"name": "b"})
	})
}

// An index function that failed once leaves its object out of the index until the object changes.
func TestIndexFunctionThatFailedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		w.create(configMap("shop", "a"))
		var calls atomic.Int32
		w.must(w.cache.IndexField(w.Context(), &corev1.ConfigMap{}, "name", func(obj client.Object) []string {
			if calls.Add(1) == 1 {
				panic("no values")
			}
			return []string{obj.GetName()}
		}))
		defer w.start()()
		err := w.cache.List(w.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"name": "a"})
		wantError(w, err, "list by index field:name: the values of shop/a: the index function failed when the object arrived")
	})
}

// Informers of built-in kinds request protobuf, unless the config has other types.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	for want, content := range map[string]rest.ContentConfig{
		"application/vnd.kubernetes.protobuf,application/json": {},
		"application/json,application/json":                    {ContentType: runtime.ContentTypeJSON},
		"application/json":                                     {AcceptContentTypes: runtime.ContentTypeJSON},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				config := w.server.RESTConfig("operator")
				config.ContentConfig = content
				sent := record(config)
				w.cache = w.newCache(config, cache.Options{})
				w.watch(&corev1.ConfigMap{})
				w.start()()
				for _, req := range sent.take() {
					if got := req.Header.Get("Accept"); req.URL.Path == "/api/v1/configmaps" && got != want {
						w.Errorf("accepted %q, want %q", got, want)
					}
				}
			})
		})
	}
}

// watch makes the cache have informers of the objects' kinds.
func (w *world) watch(objects ...client.Object) {
	w.Helper()
	for _, obj := range objects {
		_, err := w.cache.GetInformer(w.Context(), obj)
		w.must(err)
	}
}

// Informers read discovery once for a group, version and content type, unless they start at the same time. They share
// the rate limit, from which discovery is exempt.
func TestInformersShareConnection(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*rest.Config){
		"QPS":         func(config *rest.Config) { config.QPS, config.Burst = 0.1, 1 },
		"RateLimiter": func(config *rest.Config) { config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(0.1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				config := w.server.RESTConfig("operator")
				limit(config)
				sent := record(config)
				w.cache = w.newCache(config, cache.Options{Mapper: w.user.RESTMapper()})
				defer w.start()()
				w.watch(&corev1.ConfigMap{}, untyped(), &corev1.Secret{}, &corev1.Pod{}, &corev1.Namespace{}, metadata())
				w.watch(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
				w.wantShared(sent.take())
			})
		})
	}
}

// wantShared checks requests of a cache with a limit of one request in 10 s.
func (w *world) wantShared(requests []sentRequest) {
	w.Helper()
	discoveries := map[string]int{}
	var limited []sentRequest
	for _, req := range requests {
		if req.URL.Path == "/api/v1" {
			discoveries[req.Header.Get("Accept")]++
		} else {
			limited = append(limited, req)
		}
	}
	want := map[string]int{"application/vnd.kubernetes.protobuf,application/json": 1, "application/json": 1}
	if !maps.Equal(discoveries, want) {
		w.Errorf("reads of discovery %v, want %v", discoveries, want)
	}
	period := limited[len(limited)-1].at.Sub(limited[0].at).Round(time.Second)
	if want := time.Duration(len(limited)-1) * 10 * time.Second; period != want {
		w.Errorf("%d requests in %v, want %v", len(limited), period, want)
	}
}

// All requests have the user agent of the config, or client-go's.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{"operator": "operator", "": rest.DefaultKubernetesUserAgent()} {
		t.Run("user agent "+agent, func(t *testing.T) {
			t.Parallel()
			inBubbleWithoutCache(t, func(w *world) {
				config := w.server.RESTConfig(agent)
				const qps = 10
				config.QPS = qps
				sent := record(config)
				w.cache = w.newCache(config, cache.Options{})
				if config.UserAgent != agent || config.QPS != qps {
					w.Errorf("the config was changed to %v", config)
				}
				w.watch(&corev1.ConfigMap{}, untyped())
				w.start()()
				paths := map[string]bool{}
				for _, req := range sent.take() {
					paths[req.URL.Path] = true
					if got := req.UserAgent(); got != want {
						w.Errorf("%s was requested by %q, want %q", req.URL.Path, got, want)
					}
				}
				if !paths["/api/v1"] || !paths["/api/v1/configmaps"] {
					w.Errorf("requested %v", paths)
				}
			})
		})
	}
}
