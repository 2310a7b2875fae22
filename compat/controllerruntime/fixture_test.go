package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // the last one would wait
	goleak.VerifyTestMain(m)
}

// world is an API server with a client of the user, and a cache that a test may start.
type world struct {
	*testing.T

	server *apiserver.Server
	user   client.Client
	cache  cache.Cache
}

// inBubble runs a test in virtual time, with a new server and a cache with opts.
func inBubble(t *testing.T, opts cache.Options, test func(w *world)) {
	t.Helper()
	inBubbleWithoutCache(t, func(w *world) {
		w.cache = w.newCache(w.server.RESTConfig("operator"), opts)
		test(w)
	})
}

func inBubbleWithoutCache(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

// inStartedBubble runs a test in virtual time, with the ConfigMap shop/a, whose addition the log has received, and a
// started cache.
func inStartedBubble(t *testing.T, opts cache.Options, test func(w *world, cm *corev1.ConfigMap, l *log)) {
	t.Helper()
	inBubble(t, opts, func(w *world) {
		cm := configMap("shop", "a")
		w.create(cm)
		l, _ := w.follow()
		defer w.start()()
		w.wantEvents(l, "add a red true")
		test(w, cm, l)
	})
}

// withoutWatch makes changes that no watch delivers: the cache lists again.
func (w *world) withoutWatch(change func()) {
	w.Helper()
	w.server.HoldWatches()
	change()
	w.server.Compact()
	w.server.CloseWatches()
	w.server.ReleaseWatches()
	time.Sleep(time.Minute)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	kinds := append(builtin.Events(), apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(),
		builtin.Pods())
	s, err := apiserver.New(apiserver.Config{Seed: 1, NamespacesExist: true, Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.New(s.RESTConfig("user"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, server: s, user: user}
}

func (w *world) newCache(config *rest.Config, opts cache.Options) cache.Cache {
	w.Helper()
	c, err := controllerruntime.NewCache(config, opts)
	w.must(err)
	return c
}

// sentRequest is a request with the time when it was sent.
type sentRequest struct {
	*http.Request
	at time.Time
}

// requestLog records requests.
type requestLog struct {
	mu       sync.Mutex
	requests []sentRequest // guarded by mu
}

// record makes the connections with config record their requests.
func record(config *rest.Config) *requestLog {
	l := &requestLog{}
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			l.mu.Lock()
			l.requests = append(l.requests, sentRequest{req, time.Now()})
			l.mu.Unlock()
			return base.RoundTrip(req)
		})
	})
	return l
}

// take returns the requests since the last call.
func (l *requestLog) take() []sentRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	requests := l.requests
	l.requests = nil
	return requests
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wantError fails the test if err lacks one of texts.
func wantError(tb testing.TB, err error, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			tb.Errorf("error %v, want one with %q", err, text)
		}
	}
}

// start starts the cache. The returned function ends it and waits.
func (w *world) start() (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.cache.Start(ctx) }() // stop waits for it
	if !w.cache.WaitForCacheSync(ctx) {
		w.Error("the cache did not sync")
	}
	return func() {
		w.Helper()
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

func configMap(namespace, name string, labels ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i := 0; i < len(labels); i += 2 {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, labels[i], labels[i+1])
	}
	cm.Data = map[string]string{"color": "red"}
	return cm
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, obj := range objects {
		w.must(w.user.Create(w.Context(), obj))
	}
}

// paint changes the color of a ConfigMap.
func (w *world) paint(cm *corev1.ConfigMap, color string) {
	w.Helper()
	cm.Data["color"] = color
	w.must(w.user.Update(w.Context(), cm))
}

// log is an event handler that appends each event to a list. Several informers may call it.
type log struct {
	mu     sync.Mutex
	events []string // guarded by mu
}

// take returns the events since the last call, when all goroutines are idle.
func (l *log) take() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

func (l *log) OnAdd(obj any, isInInitialList bool) {
	l.add("add", obj, fmt.Sprint(isInInitialList))
}

func (l *log) OnUpdate(before, after any) {
	l.add("update", before, "to "+after.(*corev1.ConfigMap).Data["color"])
}

func (l *log) OnDelete(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		l.add("delete", unknown.Obj, "unknown "+unknown.Key)
		return
	}
	l.add("delete", obj, "known")
}

func (l *log) add(verb string, obj any, more string) {
	cm := obj.(*corev1.ConfigMap)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprint(verb, " ", cm.Name, " ", cm.Data["color"], " ", more))
}

// follow registers a log with the informer of ConfigMaps.
func (w *world) follow() (*log, toolscache.ResourceEventHandlerRegistration) {
	w.Helper()
	l := &log{}
	return l, w.handle(l)
}

func (w *world) handle(h toolscache.ResourceEventHandler) toolscache.ResourceEventHandlerRegistration {
	w.Helper()
	informer, err := w.cache.GetInformer(w.Context(), &corev1.ConfigMap{})
	w.must(err)
	registration, err := informer.AddEventHandler(h)
	w.must(err)
	return registration
}

func (w *world) wantEvents(l *log, want ...string) {
	w.Helper()
	if events := l.take(); !slices.Equal(events, want) {
		w.Errorf("events %q, want %q", events, want)
	}
}
