package controller_test

import (
	"bytes"
	"context"
	"errors"
	stdlog "log"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/mock"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/controllermock"
	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	kooperlogrus "github.com/evenkeel-go/evenkeel/compat/kooper/log/logrus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type configMaps struct{ cli kubernetes.Interface }

func (m configMaps) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return m.cli.CoreV1().ConfigMaps("").List(ctx, options)
}

func (m configMaps) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return m.cli.CoreV1().ConfigMaps("").Watch(ctx, options)
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"k": value}}
}

func (m configMaps) update(t *testing.T, obj *corev1.ConfigMap) {
	t.Helper()
	if _, err := m.cli.CoreV1().ConfigMaps("shop").Update(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// run runs a controller until stop is called. stop returns the error of Run.
func run(t *testing.T, config controller.Config) (stop func() error) {
	t.Helper()
	_, stop = runController(t, config)
	return stop
}

func TestNewReportsInvalidConfig(t *testing.T) {
	t.Parallel()
	handler := controller.HandlerFunc(func(context.Context, runtime.Object) error { return nil })
	for want, config := range map[string]*controller.Config{
		"name is required":     {Handler: handler, Retriever: configMaps{}},
		"handler is required":  {Name: "a", Retriever: configMaps{}},
		"retriever is require": {Name: "a", Handler: handler},
	} {
		_, err := controller.New(config)
		if !errors.Is(err, controller.ErrControllerNotValid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := controller.RetrieverFromListerWatcher(nil); err == nil {
		t.Error("a nil ListerWatcher is accepted")
	}
	if err := controller.HandlerFunc(nil).Handle(t.Context(), nil); err == nil {
		t.Error("a nil HandlerFunc is accepted")
	}
}

// In Kooper the retries of an object are counted as long as the process runs.
func TestSuccessResetsRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := configMaps{fake.NewClientset(configMap("web", "0"))}
		var runs atomic.Int32
		run(t, controller.Config{
			Name: "retries", Retriever: cluster, ProcessingJobRetries: 2, DisableResync: true,
			Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error {
				if runs.Add(1)%3 != 0 {
					return errors.New("twice in three runs")
				}
				return nil
			}),
		})
		for change := range 5 {
			time.Sleep(time.Minute)
			if got := int(runs.Load()); got != 3*(change+1) {
				t.Fatalf("%d runs after %d changes, want 3 for each", got, change)
			}
			cluster.update(t, configMap("web", strings.Repeat("x", change+1)))
		}
	})
}

// In Kooper Run returns at once, and the contexts of handlers never end.
func TestRunWaitsForHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		stop := run(t, controller.Config{
			Name: "wait", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))},
			Handler: controller.HandlerFunc(func(ctx context.Context, _ runtime.Object) error {
				<-ctx.Done()
				ended.Store(true)
				return ctx.Err()
			}),
		})
		time.Sleep(time.Second)
		if err := stop(); err != nil || !ended.Load() {
			t.Errorf("Run returned %v, the handler has ended: %v", err, ended.Load())
		}
	})
}

func TestPanicIsErrorOfObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int32
		run(t, controller.Config{
			Name: "panics", Retriever: configMaps{fake.NewClientset(configMap("bad", "0"), configMap("good", "0"))}, DisableResync: true,
			Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
				if obj.(*corev1.ConfigMap).Name == "bad" {
					panic("of a handler")
				}
				handled.Add(1)
				return nil
			}),
		})
		time.Sleep(time.Minute)
		if handled.Load() != 1 {
			t.Errorf("%d objects were handled beside a panic, want 1", handled.Load())
		}
	})
}

// A handler gets the object as the Retriever has it, with managedFields, and may change it.
func TestHandlerGetsWholeObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		obj := configMap("web", "v")
		obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		obj.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
		got := make(chan *corev1.ConfigMap, 10)
		run(t, controller.Config{
			Name: "whole", Retriever: list{&corev1.ConfigMapList{Items: []corev1.ConfigMap{*obj}}}, ResyncInterval: time.Minute,
			Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
				got <- obj.(*corev1.ConfigMap).DeepCopy()
				obj.(*corev1.ConfigMap).Data["k"] = "changed"
				return nil
			}),
		})
		for range 2 {
			if m := <-got; m.Data["k"] != "v" || len(m.ManagedFields) != 1 || !m.CreationTimestamp.Equal(&obj.CreationTimestamp) {
				t.Errorf("the object is %v", m)
			}
		}
	})
}

// list is a Retriever of fixed objects.
type list struct{ runtime.Object }

func (l list) List(context.Context, metav1.ListOptions) (runtime.Object, error) { return l.Object, nil }

func (l list) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func TestRetrieverOfUnstructuredObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Site", "metadata": map[string]any{"name": "web"}}}
		got := make(chan runtime.Object, 10)
		run(t, controller.Config{
			Name: "sites", Retriever: list{&unstructured.UnstructuredList{Items: []unstructured.Unstructured{u}}},
			Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
				got <- obj
				return nil
			}),
		})
		if obj := (<-got).(*unstructured.Unstructured); obj.GetKind() != "Site" || obj.GetName() != "web" {
			t.Errorf("the object is %v", obj)
		}
	})
}

// A replica that stops releases the lease, after its handlers. In Kooper it holds the lease until the process ends.
func TestNextReplicaLeadsAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := configMaps{fake.NewClientset(configMap("web", "0"))}
		handled := make(chan string, 10)
		replica := func(name string) (stop func() error) {
			elector, err := leaderelection.NewDefault("operator", "shop", cluster.cli, log.Dummy)
			if err != nil {
				t.Fatal(err)
			}
			return run(t, controller.Config{
				Name: "election", Retriever: cluster, LeaderElector: elector,
				Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error {
					handled <- name
					return nil
				}),
			})
		}
		stop := replica("first")
		if name := <-handled; name != "first" {
			t.Fatalf("handled by %s", name)
		}
		replica("second")
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if name := <-handled; name != "second" || time.Since(began) > 5*time.Second {
			t.Errorf("handled by %s after %s", name, time.Since(began))
		}
	})
}

// runner is a Runner of a program. It leads from lead on, until lose.
type runner struct{ lead, lose chan struct{} }

func (r runner) Run(f func() error) error {
	<-r.lead
	ended := make(chan error, 1)
	go func() { ended <- f() }() // waited for by the controller
	select {
	case err := <-ended:
		return err
	case <-r.lose:
		return errors.New("lost")
	}
}

func TestRunnerOfProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leads, loses bool
		want         string
	}{
		"stops while it waits": {},
		"stops while it leads": {leads: true},
		"loses leadership":     {leads: true, loses: true, want: "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := runner{make(chan struct{}), make(chan struct{})}
				var running atomic.Int32
				stop := run(t, controller.Config{
					Name: "runner", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))}, LeaderElector: r,
					Handler: controller.HandlerFunc(func(ctx context.Context, _ runtime.Object) error {
						running.Add(1)
						defer running.Add(-1)
						<-ctx.Done()
						return nil
					}),
				})
				if test.leads {
					close(r.lead)
				}
				time.Sleep(time.Second)
				if leads := running.Load() == 1; leads != test.leads {
					t.Errorf("the handler runs: %v", leads)
				}
				if test.loses {
					close(r.lose)
					time.Sleep(time.Second)
				}
				err := stop()
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("Run returned %v, want %q", err, test.want)
				}
				if running.Load() != 0 {
					t.Error("Run returned before the handler")
				}
				if !test.leads {
					close(r.lead) // ends the goroutine of the Runner
				}
			})
		})
	}
}

// neverLeads is a Runner whose nil pointer is valid.
type neverLeads struct{}

func (*neverLeads) Run(func() error) error { return errors.New("it never leads") }

func TestNilPointerIsAskedForLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := run(t, controller.Config{
			Name: "runner", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))}, LeaderElector: (*neverLeads)(nil),
			Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error {
				t.Error("the handler is called without leadership")
				return nil
			}),
		})
		time.Sleep(time.Second)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "it never leads") {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestLinesReachLoggerOfProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := &bytes.Buffer{}
		logger := logrus.New()
		logger.SetOutput(text) // logrus locks it
		stop := run(t, controller.Config{
			Name: "logs", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))}, Logger: kooperlogrus.New(logrus.NewEntry(logger)),
			Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error { return errors.New("it is 100% broken") }),
		})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"controller-id=logs", "it is 100% broken", "level=error", "object-key=shop/web"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, text)
			}
		}
	})
}

func TestMockOfHandler(t *testing.T) {
	t.Parallel()
	h := controllermock.NewHandler(t)
	h.EXPECT().Handle(mock.Anything, configMap("a", "0")).Return(errors.New("a")).Once()
	h.EXPECT().Handle(mock.Anything, mock.Anything).RunAndReturn(func(_ context.Context, obj runtime.Object) error {
		return errors.New(obj.(*corev1.ConfigMap).Name)
	})
	for _, name := range []string{"a", "b"} {
		if err := h.Handle(t.Context(), configMap(name, "0")); err == nil || err.Error() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStdLoggerWritesLevelMessageAndAttributes(t *testing.T) { //nolint:paralleltest // the standard logger is global
	text, before := &bytes.Buffer{}, stdlog.Writer()
	stdlog.SetOutput(text)
	defer stdlog.SetOutput(before)
	logger := log.NewStd(false).WithKV(log.KV{"b": "100%", "a": 1})
	logger.Infof("hello %d", 7)
	logger.Debugf("hidden")
	if got := text.String(); !strings.HasSuffix(got, "[INFO]\thello 7\t\tmap[a:1 b:100%]\n") || strings.Contains(got, "hidden") {
		t.Errorf("logged %q", got)
	}
}
