package programs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// patience is the time in which something must happen.
const patience = 30 * time.Second

// output collects what a program prints.
type output struct {
	*testing.T
	lines  chan string
	cancel context.CancelFunc
	ended  chan error
}

// start runs a program until the test ends.
func start(t *testing.T, program func(ctx context.Context, show func(string)) error) *output {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o := &output{T: t, lines: make(chan string, 1000), cancel: cancel, ended: make(chan error, 1)}
	go func() { // waited for by stop
		o.ended <- program(ctx, func(line string) { o.lines <- line })
	}()
	t.Cleanup(o.stop)
	return o
}

func (o *output) stop() {
	o.Helper()
	o.cancel()
	select {
	case err := <-o.ended:
		if err != nil {
			o.Errorf("the program ended with %v", err)
		}
	case <-time.After(patience):
		o.Error("the program does not end")
	}
	o.ended <- nil // for the next call
}

// expect waits for lines, in any order.
func (o *output) expect(want ...string) {
	o.Helper()
	var got []string
	for range want {
		select {
		case line := <-o.lines:
			got = append(got, line)
		case <-time.After(patience):
			o.Fatalf("after %q nothing more was printed, want %q", got, want)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		o.Fatalf("the program printed %q, want %q", got, want)
	}
}

// quiet checks that nothing is printed for some time.
func (o *output) quiet(during time.Duration) {
	o.Helper()
	select {
	case line := <-o.lines:
		o.Errorf("the program printed %q, want nothing", line)
	case <-time.After(during):
	}
}

func pod(name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// bubbled runs a test with a fake client.
func bubbled(t *testing.T, test func(t *testing.T, cli kubernetes.Interface), objects ...runtime.Object) {
	t.Helper()
	bubble(t, func(t *testing.T) { test(t, fake.NewClientset(objects...)) })
}

func TestPrinterPrintsListedAddedAndChangedPods(t *testing.T) {
	t.Parallel()
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		out := start(t, func(ctx context.Context, show func(string)) error { return Printer(ctx, cli, show) })
		out.expect("default/a nginx:1", "default/b nginx:1")
		must(cli.CoreV1().Pods("default").Create(t.Context(), pod("c", "nginx:1"), metav1.CreateOptions{}))
		out.expect("default/c nginx:1")
		must(cli.CoreV1().Pods("default").Update(t.Context(), pod("a", "nginx:2"), metav1.UpdateOptions{}))
		out.expect("default/a nginx:2")
		if err := cli.CoreV1().Pods("default").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		out.quiet(time.Second)
	}, pod("a", "nginx:1"), pod("b", "nginx:1"))
}

func TestFailingObjectIsRetriedAsOftenAsConfigured(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 3} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
				out := start(t, func(ctx context.Context, show func(string)) error { return Retries(ctx, cli, retries, show) })
				for run := range retries + 1 {
					out.expect(fmt.Sprint("run ", run+1))
				}
				out.quiet(2 * time.Second)
			}, pod("broken", "nginx:1"))
		})
	}
}

func TestObjectsRunAgainAfterResyncInterval(t *testing.T) {
	t.Parallel()
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		out := start(t, func(ctx context.Context, show func(string)) error {
			return Resync(ctx, cli, 2*time.Second, show)
		})
		out.expect("a")
		out.expect("a")
		out.expect("a")
	}, pod("a", "nginx:1"))
}

func TestHandlersRunConcurrently(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	for n := range 10 {
		objects = append(objects, pod(fmt.Sprint("p", n), "nginx:1"))
	}
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		released := make(chan struct{})
		out := start(t, func(ctx context.Context, show func(string)) error {
			return Concurrency(ctx, cli, 4, func() { <-released }, show)
		})
		out.expect("running 1", "running 2", "running 3", "running 4")
		out.quiet(time.Second)
		close(released)
		for range 6 {
			<-out.lines
		}
	}, objects...)
}

func TestOnlyLeaderHandles(t *testing.T) {
	t.Parallel()
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		first := start(t, func(ctx context.Context, show func(string)) error { return Election(ctx, cli, "first", show) })
		first.expect("first a")
		second := start(t, func(ctx context.Context, show func(string)) error { return Election(ctx, cli, "second", show) })
		must(cli.CoreV1().Pods("default").Create(t.Context(), pod("b", "nginx:1"), metav1.CreateOptions{}))
		first.expect("first b")
		second.quiet(2 * time.Second)
		standbyStops(second)
	}, pod("a", "nginx:1"))
}

func TestMetricsHaveNamesAndLabelsOfKooper(t *testing.T) {
	t.Parallel()
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		registry := prometheus.NewRegistry()
		out := start(t, func(ctx context.Context, show func(string)) error { return Metrics(ctx, cli, registry, show) })
		out.expect("a", "broken")
		want := []string{
			"kooper_controller_event_in_queue_duration_seconds controller=metrics",
			"kooper_controller_event_queue_length controller=metrics",
			"kooper_controller_processed_event_duration_seconds controller=metrics success=false",
			"kooper_controller_processed_event_duration_seconds controller=metrics success=true",
			"kooper_controller_queued_events_total controller=metrics requeue=false",
		}
		var got []string
		for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
			got = nil
			for _, family := range must(registry.Gather()) {
				for _, metric := range family.GetMetric() {
					line := family.GetName()
					for _, label := range metric.GetLabel() {
						line += " " + label.GetName() + "=" + label.GetValue()
					}
					got = append(got, line)
				}
			}
			if slices.Equal(got, want) {
				return
			}
		}
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}, pod("a", "nginx:1"), pod("broken", "nginx:1"))
}

func TestControllersOfSeveralResourcesShareHandler(t *testing.T) {
	t.Parallel()
	two, meta := int32(2), metav1.ObjectMeta{Namespace: "default", Name: "web"}
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		out := start(t, func(ctx context.Context, show func(string)) error { return Resources(ctx, cli, show) })
		out.expect("Deployment web: 2", "StatefulSet web: 2")
	},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &two}})
}

func TestOperatorWithFinalizer(t *testing.T) {
	t.Parallel()
	bubbled(t, func(t *testing.T, cli kubernetes.Interface) {
		maps := cli.CoreV1().ConfigMaps("default")
		out := start(t, func(ctx context.Context, show func(string)) error { return Operator(ctx, cli, show) })
		must(maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"mirror": ""}}, Data: map[string]string{"k": "v"},
		}, metav1.CreateOptions{}))
		out.expect("created web")
		m := must(maps.Get(t.Context(), "web", metav1.GetOptions{}))
		if !slices.Equal(m.Finalizers, []string{Finalizer}) {
			t.Errorf("the finalizers are %q", m.Finalizers)
		}
		m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		must(maps.Update(t.Context(), m, metav1.UpdateOptions{}))
		out.expect("removed web")
		out.quiet(time.Second)
		if list := must(cli.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})); len(list.Items) != 0 {
			t.Errorf("%d Secrets are left", len(list.Items))
		}
	})
}
