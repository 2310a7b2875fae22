package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC   // golden files have times, which the machine's zone must not change
	debug.SetGCPercent(400) // these tests create much garbage: a quarter of their CPU time was the garbage collector's
	goleak.VerifyTestMain(m)
}

type configMap = *corev1.ConfigMap

func newServer(names ...string) *kindserver.Server[configMap] {
	s := kindserver.New[configMap](apiserver.ConfigMaps(), true)
	for _, name := range names {
		s.Put(object(name, "1"))
	}
	return s
}

func object(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

type handlerFunc = controller.Handler[configMap]

// config returns a controller's config with the fields that every test needs. The tests set the other fields.
func config(server informer.Retriever[configMap], handler handlerFunc) controller.Config[configMap] {
	return controller.Config[configMap]{
		Name:           "test",
		Retriever:      server,
		Handler:        handler,
		ResyncInterval: -1,
		Logger:         slog.New(slog.DiscardHandler),
	}
}

func newController(t *testing.T, c controller.Config[configMap]) *controller.Controller[configMap] {
	t.Helper()
	ctrl, err := controller.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return ctrl
}

// start runs a controller until the returned function is called, which waits for the end of Run and returns its error.
func start[T kube.Object](t *testing.T, ctrl *controller.Controller[T]) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var err error
	go func() { // waited for by stop
		defer close(done)
		err = ctrl.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return stop
}

// expectNoProblems fails the test if the controller has problems at this time.
func expectNoProblems[T kube.Object](t *testing.T, when string, ctrl *controller.Controller[T]) {
	t.Helper()
	if problems := ctrl.Problems(); len(problems) != 0 {
		t.Errorf("%s, problems %+v", when, problems)
	}
}

// expectNoFailures fails the test if keys fail or the controller has problems at this time.
func expectNoFailures[T kube.Object](t *testing.T, when string, ctrl *controller.Controller[T]) {
	t.Helper()
	if s := ctrl.Stats(); s.Failing != 0 || len(s.Problems) != 0 {
		t.Errorf("%s, %d keys fail, problems %v", when, s.Failing, s.Problems)
	}
}

// journal records what handlers report. It is safe for concurrent use.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) Write(p []byte) (int, error) {
	j.add("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// logger returns a logger that writes into the journal, without times.
func (j *journal) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// recorder is a controller.Recorder that counts.
type recorder struct {
	mu       sync.Mutex
	outcomes map[controller.Outcome]int
	retries  int
	queued   map[controller.CauseType]int
	watched  int // ObserveController and ObserveInformer minus their stops
}

func newRecorder() *recorder {
	return &recorder{outcomes: map[controller.Outcome]int{}, queued: map[controller.CauseType]int{}}
}

func (r *recorder) observe(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched += by
}

// observers returns the number of observers that have not been stopped.
func (r *recorder) observers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched
}

func (r *recorder) ObserveInformer(string, func() informer.Health) func() {
	r.observe(1)
	return func() { r.observe(-1) }
}

func (r *recorder) ObserveController(string, func() controller.Stats) func() {
	r.observe(1)
	return func() { r.observe(-1) }
}

func (r *recorder) Triggered(_, _ string, cause controller.CauseType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued[cause]++
}

func (r *recorder) RunEnded(_ string, h controller.RunRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[h.Outcome]++
	if h.Attempt > 0 {
		r.retries++
	}
}

// snapshot returns copies of the counts.
func (r *recorder) snapshot() (outcomes map[controller.Outcome]int, retries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.outcomes), r.retries
}

func (r *recorder) Skipped(string, controller.SkipReason) {}

func (r *recorder) ProblemDetected(string, controller.ProblemType) {}
