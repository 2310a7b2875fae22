package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/source"
)

// A standby whose informers are in the group Caches handles every object when it takes over, and lists nothing: not
// after a release of the lease, not after a leader without a connection, and not in its second term.
func TestWarmStandbyTakesOverWithoutListing(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"released lease": false, "leader without a connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Client(t, clustertest.Connect(t, local.RESTConfig()))
			namespace := clustertest.Namespace(t, c)
			create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "operator"}})
			const objects = 100
			for i := range objects {
				create(t, c, configMap(namespace, fmt.Sprintf("shop-%03d", i)))
				create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("shop-%03d", i)}})
			}

			first := newReplica(t, namespace)
			stopFirst := first.start()
			first.until("the leader handled every object", func() string { return first.handles(objects) })
			second := newReplica(t, namespace)
			second.start()
			second.until("the standby is ready", func() string { return errorText(second.manager.Ready()) })
			// The standby's caches follow changes.
			if err := client.Delete(t.Context(), c, configMap(namespace, "shop-000")); err != nil {
				t.Fatal(err)
			}
			create(t, c, configMap(namespace, "shop-new"))
			second.until("the cache of the standby contains the change", func() string {
				if cache.Of(second.maps).Has(kube.Key{Namespace: namespace, Name: "shop-000"}) || !cache.Of(second.maps).Has(kube.Key{Namespace: namespace, Name: "shop-new"}) {
					return "it does not"
				}
				return ""
			})
			if n := second.handled.Load(); n > 0 {
				t.Errorf("the standby handled %d objects", n)
			}
			if state := second.manager.Leadership(); !state.Standby {
				t.Errorf("the second replica is %+v, want a standby", state)
			}

			before := second.reads()
			began := time.Now()
			if cut {
				first.cut.Store(true)
			} else if err := stopFirst(); err != nil {
				t.Errorf("the first leader: %v", err)
			}
			second.until("the standby leads and handled every object", func() string { return second.handles(objects) })
			t.Logf("%s: all objects were handled %s after the end of the leader", name, time.Since(began).Round(time.Millisecond))
			if after := second.reads(); !maps.Equal(before, after) {
				t.Errorf("lists and watches of the standby:\nbefore it took over %v\nafterwards          %v", before, after)
			}
			if !cut {
				return
			}
			// The first replica is a standby with a connection again. The second one loses its lease, and the first one takes
			// over in its second term.
			first.cut.Store(false)
			first.until("the first replica is a ready standby", func() string {
				if state := first.manager.Leadership(); !state.Standby {
					return fmt.Sprintf("it is %+v", state)
				}
				return errorText(first.manager.Ready())
			})
			before = first.reads()
			first.forget()
			second.cut.Store(true)
			first.until("the first replica handled every object in its second term", func() string { return first.handles(objects) })
			if after := first.reads(); !maps.Equal(before, after) {
				t.Errorf("lists and watches of the first replica:\nbefore its second term %v\nafterwards            %v", before, after)
			}
		})
	}
}

// replica is a manager with a controller, whose caches are warm on a standby.
type replica struct {
	*testing.T
	manager *manager.Manager
	maps    *informer.Informer[*corev1.ConfigMap]

	cut     atomic.Bool // its requests fail
	handled atomic.Int32

	mu       sync.Mutex
	keys     map[kube.Key]bool // guarded by mu; handled ones
	requests map[string]int    // guarded by mu; lists and watches
}

func newReplica(t *testing.T, namespace string) *replica {
	t.Helper()
	r := &replica{T: t, keys: map[kube.Key]bool{}, requests: map[string]int{}}
	config := local.RESTConfig()
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if r.cut.Load() {
				return nil, errors.New("the connection is cut")
			}
			return base.RoundTrip(req)
		})
	})
	cluster := clustertest.Connect(t, rest.CopyConfig(config))
	selection := kube.Selection{Namespaces: []string{namespace}}
	configMaps := newInformer[*corev1.ConfigMap](t, cluster, "configmaps", selection)
	secrets := newInformer[*corev1.Secret](t, cluster, "secrets", selection)
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "shops", Informer: configMaps, Handler: r.handle, Logger: clustertest.Logger(t),
		Sources: []controller.Source{source.Mapped(secrets, func(secret *corev1.Secret) []kube.Key {
			return []kube.Key{kube.KeyOf(secret)}
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.maps = configMaps
	r.manager, err = manager.New(manager.Config{
		IgnoreSignals: true, Logger: clustertest.Logger(t),
		LeaderElection: &leader.Config{
			Cluster: cluster, Namespace: namespace, Name: "operator",
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 250 * time.Millisecond,
		},
		// region warm
		Runnables: []manager.Runnable{
			{Runner: configMaps, Group: manager.Caches}, // the informer in the controller's Config.Informer
			{Runner: secrets, Group: manager.Caches},    // the informer of a source
			{Runner: ctrl},                              // LeaderOnly
		},
		// endregion
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newInformer[T kube.Object](t *testing.T, cluster *kube.Cluster, name string, selection kube.Selection) *informer.Informer[T] {
	t.Helper()
	i, err := informer.New(informer.Config[T]{
		Name: name, Retriever: informer.RetrieveSelected[T](cluster, selection), Logger: clustertest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (r *replica) handle(_ context.Context, m *corev1.ConfigMap) error {
	r.handled.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[kube.KeyOf(m)] = true
	return nil
}

// handles returns "" if the replica handled want objects since forget.
func (r *replica) handles(want int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.keys); n != want {
		return fmt.Sprintf("it handled %d of %d objects", n, want)
	}
	return ""
}

func (r *replica) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.keys)
}

// reads returns the numbers of lists and watches by resource.
func (r *replica) reads() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.requests)
}

// CallBegan implements kube.CallObserver.
func (r *replica) CallBegan(ctx context.Context, call kube.Call) context.Context {
	if slices.Contains([]string{"list", "watch"}, call.Verb) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests[call.Verb+" "+call.Resource.Resource]++
	}
	return ctx
}

// CallEnded implements kube.CallObserver.
func (r *replica) CallEnded(context.Context, kube.Call) {}

// start runs the manager until stop, or until the end of the test.
func (r *replica) start() (stop func() error) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	ended := make(chan struct{})
	var err error
	go func() { // waited for by stop
		defer close(ended)
		err = r.manager.Run(kube.ObserveCalls(ctx, r))
	}()
	stop = func() error {
		cancel()
		<-ended
		return err
	}
	r.Cleanup(func() { _ = stop() }) // the release of the lease fails if the connection is cut
	return stop
}

func (r *replica) until(what string, check func() string) {
	r.Helper()
	clustertest.Eventually(r, func() string {
		if text := check(); text != "" {
			return what + ": " + text
		}
		return ""
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func errorText(err error) string {
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func create(t *testing.T, c *client.Client, obj kube.Object) {
	t.Helper()
	if _, err := client.Create(t.Context(), c, obj); err != nil {
		t.Fatal(err)
	}
}
