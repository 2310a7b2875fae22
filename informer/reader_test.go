package informer_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestCoversAfterList(t *testing.T) {
	for name, test := range map[string]struct {
		selections []kube.Selection
		want       map[string]bool // key: namespace, or namespace and selector
	}{
		"everything":      {[]kube.Selection{{}}, map[string]bool{"": true, "ns": true, "other": true}},
		"every namespace": {[]kube.Selection{{Namespaces: []string{kube.AllNamespaces}}}, map[string]bool{"": true, "ns": true, "other": true}},
		"one namespace":   {[]kube.Selection{{Namespaces: []string{"ns"}}}, map[string]bool{"": false, "ns": true, "other": false}},
		"two namespaces":  {[]kube.Selection{{Namespaces: []string{"ns", "b"}}}, map[string]bool{"": false, "ns": true, "b": true, "other": false}},
		"some by label":   {[]kube.Selection{{LabelSelector: "app=a"}}, map[string]bool{"": false, "ns": false, "ns app=a": true, " app=a,tier=b": true, " app in (a)": false, " app=b": false}},
		"some by field":   {[]kube.Selection{{FieldSelector: "metadata.name=kept"}}, map[string]bool{"": false, "ns": false}},
		"the rest by field": {
			[]kube.Selection{{Namespaces: []string{"ns"}, LabelSelector: "app=a"}, {FieldSelector: "metadata.namespace!=ns,metadata.namespace!=b"}},
			map[string]bool{"": false, "ns": false, "ns app=a": true, "b": false, "other": true, "other app=a": true},
		},
		"some and the all": {[]kube.Selection{{LabelSelector: "app=a"}, {Namespaces: []string{"ns"}}}, map[string]bool{"": false, "ns": true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, events := selected(t)
				var parts []informer.Retriever[*corev1.ConfigMap]
				for _, selection := range test.selections {
					parts = append(parts, informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection))
				}
				i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Combine(parts...)})
				if err != nil {
					t.Fatal(err)
				}
				for asked := range test.want {
					if cache.Of(i).Covers(question(t, asked)) {
						t.Errorf("it covers %q before it runs", asked)
					}
				}
				leave := i.Join(t.Context())
				if err := i.WaitSynced(t.Context()); err != nil {
					t.Fatal(err)
				}
				for asked, want := range test.want {
					if got := cache.Of(i).Covers(question(t, asked)); got != want {
						t.Errorf("it covers %q: %t, want %t", asked, got, want)
					}
				}
				_ = events.Close()
				leave()
				for asked := range test.want {
					if cache.Of(i).Covers(question(t, asked)) {
						t.Errorf("it covers %q after it has run", asked)
					}
				}
			})
		})
	}
}

// question parses "namespace selector".
func question(t *testing.T, asked string) (namespace string, selector labels.Selector) {
	t.Helper()
	namespace, text, selects := strings.Cut(asked, " ")
	if !selects {
		return namespace, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return namespace, selector
}

func TestObjectsWithoutType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, events := selected(t)
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
		if err != nil {
			t.Fatal(err)
		}
		leave := i.Join(t.Context())
		defer leave()
		defer func() { _ = events.Close() }()
		if err := i.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := kube.Key{Namespace: "ns", Name: "kept"}
		if obj, _, found, err := cache.Of(i).Object(key); err != nil || !found || kube.KeyOf(obj) != key {
			t.Errorf("the object is %v, %t, %v", obj, found, err)
		}
		// obj must be nil, and not an interface with a nil pointer.
		if obj, _, found, err := cache.Of(i).Object(kube.Key{Namespace: "ns", Name: "none"}); err != nil || found || obj != nil {
			t.Errorf("no object is %v, %t, %v", obj, found, err)
		}
		for query, want := range map[[2]string]int{{"", ""}: 1, {"ns", "app=a"}: 1, {"ns", "app=b"}: 0, {"other", ""}: 0} {
			selector, err := labels.Parse(query[1])
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for obj, err := range cache.Of(i).Objects(query[0], selector) {
				if err != nil || kube.KeyOf(obj) != key {
					t.Errorf("%q: %v, %v", query, obj, err)
				}
				got++
			}
			if got != want {
				t.Errorf("%q: %d objects, want %d", query, got, want)
			}
		}
	})
}

// The cache of a stopped informer would stay stale forever, so a client reads from the API server instead.
func TestStoppedInformerReturnsNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, events := selected(t)
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
		if err != nil {
			t.Fatal(err)
		}
		leave := i.Join(t.Context())
		if err := i.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := kube.Key{Namespace: "ns", Name: "kept"}
		if _, _, found, err := cache.Of(i).Object(key); err != nil || !found {
			t.Fatalf("while it runs the object is found: %t, %v", found, err)
		}
		_ = events.Close()
		leave()
		if obj, _, found, err := cache.Of(i).Object(key); err != nil || found || obj != nil {
			t.Errorf("after it has run the object is %v, %t, %v", obj, found, err)
		}
		for obj, err := range cache.Of(i).Objects("", nil) {
			t.Errorf("after it has run the objects are %v, %v", obj, err)
		}
	})
}

// An informer covers its objects only after it has listed them, even if the API server first forbids reading them and
// then fails in another way.
func TestOptionalInformerCoversOnlyListedObjects(t *testing.T) {
	configMaps := apiserver.ConfigMaps()
	resource := corev1.Resource("configmaps")
	forbidden := apierrors.NewForbidden(resource, "", errors.New("jane may not"))
	notServed := apierrors.NewNotFound(resource, "")
	unreachable := apierrors.NewInternalError(errors.New("etcd is away"))
	for name, test := range map[string]struct {
		listed bool // the informer had listed before the errors
		errs   []*apierrors.StatusError
	}{
		"forbidden":                              {errs: []*apierrors.StatusError{forbidden}},
		"forbidden, then another error":          {errs: []*apierrors.StatusError{forbidden, unreachable}},
		"not served, then another error":         {errs: []*apierrors.StatusError{notServed, unreachable}},
		"another error":                          {errs: []*apierrors.StatusError{unreachable}},
		"listed, forbidden, then another error":  {listed: true, errs: []*apierrors.StatusError{forbidden, unreachable}},
		"listed, not served, then another error": {listed: true, errs: []*apierrors.StatusError{notServed, unreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(configMaps)
				key := kube.Key{Namespace: "ns", Name: "a"}
				server.Edit("configmaps", key, "user", func(map[string]any) bool { return true })
				var fails atomic.Pointer[apierrors.StatusError]
				server.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
					if err := fails.Load(); err != nil {
						return apitest.Failure(err), nil
					}
					return do(), nil
				})
				if !test.listed {
					fails.Store(test.errs[0]) // before the informer makes its first request
				}
				i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{Optional: true}, kube.Selection{})
				defer i.Join(t.Context())()
				if test.listed {
					if err := i.WaitSynced(t.Context()); err != nil || !cache.Of(i).Covers("", nil) {
						t.Fatalf("it does not cover what it has listed: %v", err)
					}
				}
				for _, err := range test.errs {
					fails.Store(err)
					server.Break("configmaps", false)
					time.Sleep(time.Minute)
					if cache.Of(i).Covers("", nil) {
						t.Errorf("it covers all objects, but the API server answers %q", err.Status().Reason)
					}
				}
				fails.Store(nil)
				time.Sleep(time.Minute)
				if _, found, err := i.Get(key); err != nil || !found || !cache.Of(i).Covers("", nil) {
					t.Errorf("it has listed again, and covers %t, finds %t, %v", cache.Of(i).Covers("", nil), found, err)
				}
			})
		})
	}
}

// Covers may be called while the informer starts and stops.
func TestCoversDuringStarts(t *testing.T) {
	server := apitest.New(apiserver.ConfigMaps())
	i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{}, kube.Selection{LabelSelector: "app=a"})
	selector, err := labels.Parse("app=a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() { // waited for below
			for ctx.Err() == nil {
				cache.Of(i).Covers("", slowSelector{selector})
			}
		})
	}
	for range 200 {
		i.Join(t.Context())()
	}
	cancel()
	readers.Wait()
}

// slowSelector lets other goroutines run before it returns its requirements.
type slowSelector struct{ labels.Selector }

// Requirements implements labels.Selector.
func (s slowSelector) Requirements() (labels.Requirements, bool) {
	for range 10 {
		runtime.Gosched()
	}
	return s.Selector.Requirements()
}

// newInformer returns an informer of the server's ConfigMaps that selection selects.
func newInformer(t *testing.T, server *apitest.Server, config informer.Config[*corev1.ConfigMap], selection kube.Selection) *informer.Informer[*corev1.ConfigMap] {
	t.Helper()
	cluster, err := kube.Connect(server.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	config.Retriever = informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	i, err := informer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// A read from an informer that does not run is an error, not an empty result.
func TestReadsOfStoppedInformer(t *testing.T) {
	server := apitest.New(apiserver.ConfigMaps())
	key := kube.Key{Namespace: "ns", Name: "a"}
	server.Edit("configmaps", key, "user", func(map[string]any) bool { return true })
	for name, selection := range map[string]kube.Selection{"one part": {}, "combined": {Namespaces: []string{"ns", "other"}}} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{}, selection)
			view, err := informer.As[*metav1.PartialObjectMetadata](i)
			if err != nil {
				t.Fatal(err)
			}
			var snapshot informer.Snapshot[*corev1.ConfigMap]
			all := func(objects iter.Seq2[*corev1.ConfigMap, error]) (err error) {
				for _, err = range objects {
				}
				return err
			}
			reads := map[string]func() error{
				"Get":         func() error { _, _, err := i.Get(key); return err },
				"Get by view": func() error { _, _, err := view.Get(key); return err },
				"List":        func() error { return all(i.List(informer.Query{})) },
				"All":         func() error { return all(i.List(informer.Query{})) },
				"Count":       func() error { _, err := i.Count(informer.Query{}); return err },
				"Snapshot": func() error {
					_, _, err := i.Snapshot().Get(key)
					_, countErr := i.Snapshot().Count(informer.Query{})
					return errors.Join(err, countErr, all(i.Snapshot().List(informer.Query{})))
				},
			}
			check := func(when string, fails bool) {
				t.Helper()
				for name, read := range reads {
					if err := read(); errors.Is(err, informer.ErrNotRunning) != fails || !fails && err != nil {
						t.Errorf("%s: %s returns %v", when, name, err)
					}
				}
				if err := i.Ready(); fails && err == nil {
					t.Errorf("%s: it is ready", when)
				}
			}
			check("before it runs", true)
			leave := view.Join(t.Context())
			if err := i.WaitSynced(t.Context()); err != nil {
				t.Fatal(err)
			}
			check("while it runs", false)
			snapshot = i.Snapshot()
			leave()
			check("after it has run", true)
			if _, found, err := snapshot.Get(key); err != nil || !found {
				t.Errorf("a snapshot of before has it: %t, %v", found, err)
			}
		})
	}
}
