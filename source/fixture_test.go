package source_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type configMap = *corev1.ConfigMap

// website is the kind of the owners.
func website() schema.GroupKind { return schema.GroupKind{Group: "example.com", Kind: "Website"} }

func newServer(objects ...configMap) *kindserver.Server[configMap] {
	server := kindserver.New[configMap](apiserver.ConfigMaps(), true)
	for _, obj := range objects {
		server.Put(obj)
	}
	return server
}

// child returns a ConfigMap with these owner references.
func child(name string, owners ...metav1.OwnerReference) configMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners}}
}

// by returns a controller reference to a Website.
func by(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Website", Name: name, UID: "u", Controller: new(true)}
}

func labeled(name string, labels map[string]string) configMap {
	obj := child(name)
	obj.Labels = labels
	return obj
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

type enqueued struct {
	Key    kube.Key
	Detail string
}

// queue collects what a source enqueues.
type queue struct {
	mu  sync.Mutex
	all []enqueued
}

func (q *queue) add(key kube.Key, why controller.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, enqueued{key, why.Change.Key.String() + " " + string(why.Change.Type)})
}

func (q *queue) note(key kube.Key, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, enqueued{key, text})
}

// take returns what was enqueued since the last take, as "key: detail", sorted.
func (q *queue) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []string
	for _, e := range q.all {
		all = append(all, e.Key.String()+": "+e.Detail)
	}
	q.all = nil
	slices.Sort(all)
	return all
}

// expect compares what a source has enqueued, after all goroutines are idle.
func (q *queue) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, q.take()); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}

// logBuffer collects what a source logs.
type logBuffer struct{ testlog.Buffer }

func (b *logBuffer) logger() *slog.Logger { return b.Logger(nil) }

// newInformer returns an informer of a server's objects, named "children".
func newInformer[T kube.Object](t *testing.T, server informer.Retriever[T]) *informer.Informer[T] {
	t.Helper()
	objects, err := informer.New(informer.Config[T]{Name: "children", Retriever: server, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// start runs a source and the informers that it reads, as a controller does. stop stops both and waits for them.
func start(t *testing.T, s controller.Source) (q *queue, stop func()) {
	t.Helper()
	q = &queue{}
	ctx, cancel := context.WithCancel(t.Context())
	var leave []func()
	for _, read := range prepare(t, s).Reads {
		leave = append(leave, read.Join(ctx))
	}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, q.add) }() // waited for by stop
	return q, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v; the end of its context is no failure", err)
		}
		for _, l := range leave {
			l()
		}
	}
}

// target is the controller that sources are prepared for.
func target() controller.Target {
	return controller.Target{Controller: "test", Kind: website().WithVersion("v1"), Logger: slog.New(slog.DiscardHandler)}
}

func prepare(t *testing.T, s controller.Source) controller.PreparedSource {
	t.Helper()
	prepared, err := s.Prepare(target())
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

// run prepares a source and runs it until ctx ends, as a controller does. The caller runs the informers that it reads.
func run(ctx context.Context, s controller.Source, enqueue controller.Enqueue) error {
	prepared, err := s.Prepare(target())
	if err != nil {
		return err
	}
	if prepared.Start == nil {
		return prepared.Run(ctx, enqueue)
	}
	return startAndRun(ctx, prepared, enqueue)
}

// startAndRun runs a source that has a Start function.
func startAndRun(ctx context.Context, prepared controller.PreparedSource, enqueue controller.Enqueue) error {
	run, err := prepared.Start(ctx, enqueue)
	if err != nil || run == nil {
		return err
	}
	return run()
}

// validate returns the mistakes in a source.
func validate(s controller.Source) error {
	_, err := s.Prepare(target())
	return err
}
