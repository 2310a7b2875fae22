package controllerruntime_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
)

func untyped() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
}

func metadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
}

// Typed, unstructured and metadata-only objects are separate informers. All have managedFields, and their kind.
func TestFormsOfObjects(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		stop := w.start()
		for n, obj := range []client.Object{&corev1.ConfigMap{}, untyped(), metadata()} {
			w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), obj))
			if open := w.server.OpenWatches(); open != n+1 {
				w.Errorf("%T: %d watches, want %d", obj, open, n+1)
			}
			if len(obj.GetManagedFields()) == 0 || obj.GetUID() != cm.UID {
				w.Errorf("%T: read %v", obj, obj)
			}
			if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "ConfigMap" {
				w.Errorf("%T: kind %q", obj, kind)
			}
		}
		u := untyped()
		w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), u))
		if color, _, err := unstructured.NestedString(u.Object, "data", "color"); err != nil || color != "red" {
			w.Errorf("read %v", u.Object)
		}
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
		w.must(w.cache.List(w.Context(), list))
		if len(list.Items) != 1 || list.Items[0].Name != "a" {
			w.Errorf("listed %v", list.Items)
		}
		err := w.cache.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: "b"}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			w.Errorf("read a missing object: %v", err)
		}
		stop()
	})
}

func TestReadObjectsBelongToTheReader(t *testing.T) {
	t.Parallel()
	off := true
	inBubble(t, cache.Options{DefaultUnsafeDisableDeepCopy: &off}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		stop := w.start()
		for range 2 {
			var read corev1.ConfigMap
			w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), &read, client.UnsafeDisableDeepCopy))
			var list corev1.ConfigMapList
			w.must(w.cache.List(w.Context(), &list, client.UnsafeDisableDeepCopy))
			if read.Data["color"] != "red" || list.Items[0].Data["color"] != "red" {
				w.Errorf("read %v and %v", read.Data, list.Items[0].Data)
			}
			read.Data["color"], list.Items[0].Data["color"] = "blue", "blue"
		}
		stop()
	})
}

func names(list *corev1.ConfigMapList) (names []string) {
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) wantList(c client.Reader, want []string, opts ...client.ListOption) {
	w.Helper()
	var list corev1.ConfigMapList
	w.must(c.List(w.Context(), &list, opts...))
	if got := names(&list); !slices.Equal(got, want) {
		w.Errorf("listed %v, want %v", got, want)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		w.create(configMap("shop", "a", "tier", "web"), configMap("shop", "b", "tier", "db"), configMap("bank", "c", "tier", "web"))
		w.must(w.cache.IndexField(w.Context(), &corev1.ConfigMap{}, "color", colorOf))
		stop := w.start()
		web := client.MatchingLabels{"tier": "web"}
		w.wantList(w.cache, []string{"bank/c", "shop/a", "shop/b"})
		w.wantList(w.cache, []string{"bank/c", "shop/a"}, web)
		w.wantList(w.cache, []string{"shop/a"}, web, client.InNamespace("shop"))
		w.wantList(w.cache, []string{"shop/a", "shop/b"}, client.InNamespace("shop"))
		w.wantList(w.cache, nil, client.MatchingLabelsSelector{Selector: labels.Nothing()})
		w.wantList(w.cache, []string{"bank/c"}, web, client.InNamespace("bank"), client.Limit(1))
		w.wantList(w.cache, []string{"shop/b"}, client.HasLabels{"tier"}, client.MatchingLabels{"tier": "db"}, client.Limit(2))

		w.paint(configMapFrom(w, "shop", "b"), "blue")
		time.Sleep(time.Second)
		w.wantList(w.cache, []string{"shop/b"}, client.MatchingFields{"color": "blue"})
		w.wantList(w.cache, []string{"bank/c", "shop/a"}, client.MatchingFields{"color": "red"})
		w.wantList(w.cache, []string{"shop/a"}, client.MatchingFields{"color": "red"}, client.InNamespace("shop"))
		w.wantList(w.cache, nil, client.MatchingFields{"color": "blue"}, web)

		w.must(w.cache.IndexField(w.Context(), &corev1.ConfigMap{}, "name", func(obj client.Object) []string {
			return []string{obj.GetName()}
		}))
		w.wantList(w.cache, []string{"shop/a"}, client.MatchingFields{"color": "red", "name": "a"})
		var list corev1.ConfigMapList
		err := w.cache.List(w.Context(), &list, client.MatchingFields{"size": "1"})
		wantError(w, err, "index with name field:size does not exist")
		if err := w.cache.List(w.Context(), &list, client.Continue("x")); err == nil {
			w.Error("no error for a continue token")
		}
		err = w.cache.IndexField(w.Context(), &corev1.ConfigMap{}, "name", colorOf)
		wantError(w, err, "indexer conflict: field:name")
		stop()
	})
}

func colorOf(obj client.Object) []string { return []string{obj.(*corev1.ConfigMap).Data["color"]} }

func configMapFrom(w *world, namespace, name string) *corev1.ConfigMap {
	w.Helper()
	var cm corev1.ConfigMap
	w.must(w.user.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &cm))
	return &cm
}

func TestOptionsSelect(t *testing.T) {
	t.Parallel()
	web := labels.SelectorFromSet(labels.Set{"tier": "web"})
	for name, test := range map[string]struct {
		opts cache.Options
		want []string
	}{
		"nothing":         {cache.Options{}, []string{"bank/a", "bank/b", "shop/a", "shop/b"}},
		"namespaces":      {cache.Options{DefaultNamespaces: map[string]cache.Config{"bank": {}}}, []string{"bank/a", "bank/b"}},
		"labels":          {cache.Options{DefaultLabelSelector: web}, []string{"bank/a", "shop/a"}},
		"fields":          {cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", "b")}, []string{"bank/b", "shop/b"}},
		"namespace field": {cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("metadata.namespace", "shop")}, []string{"shop/a", "shop/b"}},
		"kind":            {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: web}}}, []string{"bank/a", "shop/a"}},
		"kind in namespaces": {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{"shop": {LabelSelector: web}, cache.AllNamespaces: {}},
		}}}, []string{"bank/a", "bank/b", "shop/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, test.opts, func(w *world) {
				for _, namespace := range []string{"bank", "shop"} {
					w.create(configMap(namespace, "a", "tier", "web"), configMap(namespace, "b"))
				}
				l, registration := w.follow()
				stop := w.start()
				w.wantList(w.cache, test.want)
				if events := l.take(); len(events) != len(test.want) || !registration.HasSynced() {
					w.Errorf("events %q", events)
				}
				stop()
			})
		})
	}
}

// The transform of controller-runtime that strips managedFields is not called. Others are.
func TestTransforms(t *testing.T) {
	t.Parallel()
	paint := func(obj any) (any, error) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			cm = cm.DeepCopy()
			cm.Data["color"] = "pink"
			return cm, nil
		}
		other := obj.(client.Object).DeepCopyObject().(client.Object)
		other.SetLabels(map[string]string{"color": "pink"})
		return other, nil
	}
	wrapped := func(obj any) (any, error) { return cache.TransformStripManagedFields()(obj) }
	for name, test := range map[string]struct {
		transform toolscache.TransformFunc
		color     string
		fields    bool
	}{
		"none":    {nil, "red", true},
		"strip":   {cache.TransformStripManagedFields(), "red", false},
		"wrapped": {wrapped, "red", false},
		"another": {paint, "pink", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, cache.Options{DefaultTransform: test.transform}, func(w *world) {
				cm := configMap("shop", "a")
				w.create(cm)
				l, _ := w.follow()
				stop := w.start()
				var read corev1.ConfigMap
				w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), &read))
				if read.Data["color"] != test.color || len(read.ManagedFields) > 0 != test.fields {
					w.Errorf("read %v", read)
				}
				w.wantEvents(l, "add a "+test.color+" true")
				for _, obj := range []client.Object{untyped(), metadata()} {
					w.must(w.cache.Get(w.Context(), client.ObjectKeyFromObject(cm), obj))
					if len(obj.GetManagedFields()) > 0 != test.fields || (obj.GetLabels()["color"] == "pink") != (test.color == "pink") {
						w.Errorf("read %v", obj)
					}
				}
				stop()
			})
		})
	}
}

// An object for which the transform fails is not readable, and others are.
func TestFailingTransform(t *testing.T) {
	t.Parallel()
	transform := func(obj any) (any, error) {
		switch obj.(client.Object).GetName() {
		case "bad":
			return nil, errors.New("is bad")
		case "other":
			return &corev1.Secret{}, nil
		}
		return obj, nil
	}
	inBubble(t, cache.Options{DefaultTransform: transform}, func(w *world) {
		w.create(configMap("shop", "bad"), configMap("shop", "good"), configMap("shop", "other"))
		l, registration := w.follow()
		stop := w.start()
		var cm corev1.ConfigMap
		for _, failing := range [][2]string{
			{"bad", "is bad"}, {"other", "the transform returned a *v1.Secret for a *v1.ConfigMap"},
		} {
			name, want := failing[0], failing[1]
			wantError(w, w.cache.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &cm), want)
			if err := w.user.Delete(w.Context(), configMap("shop", name)); err != nil {
				w.Error(err)
			}
		}
		w.must(w.cache.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: "good"}, &cm))
		w.wantEvents(l, "add good red true", "delete bad  unknown shop/bad", "delete other  unknown shop/other")
		if !registration.HasSynced() {
			w.Error("the registration has not synced")
		}
		stop()
	})
}

// A list is an error if an object cannot be decoded, never a shorter list.
func TestListOfUndecodableObject(t *testing.T) {
	t.Parallel()
	fails := func(any) (any, error) { return nil, errors.New("is bad") }
	inBubble(t, cache.Options{DefaultTransform: fails}, func(w *world) {
		w.create(configMap("shop", "a"))
		stop := w.start()
		var list corev1.ConfigMapList
		if err := w.cache.List(w.Context(), &list); err == nil {
			w.Errorf("listed %v", list.Items)
		}
		stop()
	})
}

func TestReadsThatFail(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{ReaderFailOnMissingInformer: true}, func(w *world) {
		key, cm := client.ObjectKey{Namespace: "shop", Name: "a"}, &corev1.ConfigMap{}
		_, err := w.cache.GetInformer(w.Context(), cm)
		w.must(err)
		notStarted := &cache.ErrCacheNotStarted{}
		if err := w.cache.Get(w.Context(), key, cm); !errors.As(err, &notStarted) {
			w.Errorf("before the start: %v", err)
		}
		stop := w.start()
		missing := &cache.ErrResourceNotCached{}
		if err := w.cache.Get(w.Context(), key, &corev1.Secret{}); !errors.As(err, &missing) {
			w.Errorf("without an informer: %v", err)
		}
		w.must(w.server.Withdraw(corev1.Resource("secrets")))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := w.cache.GetInformer(ctx, &corev1.Secret{}); !apierrors.IsTimeout(err) {
			w.Errorf("cancelled: %v", err)
		}
		stop()
	})
}

func TestMistakesInArguments(t *testing.T) {
	t.Parallel()
	own := func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
		return nil
	}
	for want, args := range map[string]struct {
		config *rest.Config
		opts   cache.Options
	}{
		"the rest.Config is nil":         {nil, cache.Options{}},
		"Options.NewInformer is set":     {&rest.Config{}, cache.Options{NewInformer: own}},
		"make a RESTMapper: ":            {&rest.Config{Host: "https://::1"}, cache.Options{}},
		"find the URL of the API server": {&rest.Config{Host: "https://::1"}, cache.Options{Mapper: meta.NewDefaultRESTMapper(nil)}},
		"make an HTTP client: ":          {&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing"}}, cache.Options{}},
	} {
		_, err := controllerruntime.NewCache(args.config, args.opts)
		wantError(t, err, "new cache: "+want)
	}
}

// The store of an informer, which some programs read, has client-go's methods.
func TestStoreOfInformer(t *testing.T) {
	t.Parallel()
	inBubble(t, cache.Options{}, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm, configMap("bank", "b"))
		informer, err := w.cache.GetInformer(w.Context(), cm)
		w.must(err)
		w.must(w.cache.IndexField(w.Context(), cm, "color", colorOf))
		stop := w.start()
		shared := informer.(toolscache.SharedIndexInformer)
		if shared.LastSyncResourceVersion() != w.server.Version() || !shared.GetController().HasSynced() {
			w.Errorf("at version %s, want %s", shared.LastSyncResourceVersion(), w.server.Version())
		}
		store := shared.GetIndexer()
		if _, found, err := store.Get(cm); !found || err != nil {
			w.Errorf("found %v, error %v", found, err)
		}
		keys := store.ListKeys()
		slices.Sort(keys)
		if want := []string{"bank/b", "shop/a"}; !slices.Equal(keys, want) || len(shared.GetStore().List()) != 2 {
			w.Errorf("keys %q, want %q", keys, want)
		}
		if items, err := store.Index(toolscache.NamespaceIndex, cm); err != nil || len(items) != 1 {
			w.Errorf("%d items, error %v", len(items), err)
		}
		if keys, err := store.IndexKeys("field:color", "shop/red"); err != nil || !slices.Equal(keys, []string{"shop/a"}) {
			w.Errorf("keys %q, error %v", keys, err)
		}
		want := []string{"__all_namespaces/red", "bank/red", "shop/red"}
		if values := store.ListIndexFuncValues("field:color"); !slices.Equal(values, want) {
			w.Errorf("values %q, want %q", values, want)
		}
		for _, write := range []error{store.Add(cm), store.Update(cm), store.Delete(cm), store.Replace(nil, "")} {
			wantError(w, write, "the store of an informer cannot be written")
		}
		for value, want := range map[string]string{
			"shop/many/": "read the limit of a list: ", "shop/1/a b": "read the label selector of a list: ",
		} {
			_, err := store.ByIndex("field:evenkeel.query", value)
			wantError(w, err, want)
		}
		for _, err := range []error{
			shared.SetTransform(nil), shared.SetWatchErrorHandler(func(*toolscache.Reflector, error) {}),
		} {
			wantError(w, err, "set the ", ": the informer was made already")
		}
		before := store.GetIndexers()
		w.must(shared.AddIndexers(toolscache.Indexers{"none": func(any) ([]string, error) { return nil, nil }}))
		if len(before) != 2 || len(store.GetIndexers()) != 3 {
			w.Errorf("%d indexes, and %d before another one was added", len(store.GetIndexers()), len(before))
		}
		w.must(store.Resync())
		stop()
	})
}

// A Go type may be registered for several kinds.
func TestTypeOfSeveralKinds(t *testing.T) {
	t.Parallel()
	types := runtime.NewScheme()
	if err := corev1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	types.AddKnownTypeWithName(schema.GroupVersionKind{Group: "a.example.com", Version: "v1", Kind: "Map"}, &corev1.ConfigMap{})
	inBubble(t, cache.Options{Scheme: types}, func(w *world) {
		w.create(configMap("shop", "a"))
		informer, err := w.cache.GetInformerForKind(w.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		w.must(err)
		l := &log{}
		_, err = informer.AddEventHandler(l)
		w.must(err)
		stop := w.start()
		w.wantEvents(l, "add a red true")
		stop()
	})
}
