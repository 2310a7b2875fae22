package toolkit

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// benchSet is a set of ConfigMaps and Services with informers, as in a program.
type benchSet struct {
	cluster  *kube.Cluster
	configs  *informer.Informer[*corev1.ConfigMap]
	services *informer.Informer[*corev1.Service]
}

// newBenchSet starts the informers. They keep the managed fields of the field owner applier; "" keeps none.
func newBenchSet(b *testing.B, applier string) benchSet {
	b.Helper()
	cluster := clustertest.Connect(b, anyCluster.RESTConfig(b, simulation.Config{WithoutControllers: true}))
	return benchSet{cluster, keptBy[*corev1.ConfigMap](b, cluster, applier), keptBy[*corev1.Service](b, cluster, applier)}
}

func keptBy[T kube.Object](b *testing.B, cluster *kube.Cluster, applier string) *informer.Informer[T] {
	b.Helper()
	objects, err := informer.New(informer.Config[T]{
		Retriever:     informer.RetrieveSelected[T](cluster, kube.Selection{LabelSelector: owned.LabelSet + "=bench"}),
		KeepAppliedBy: applier, Logger: clustertest.Logger(b),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(objects.Join(b.Context()))
	if err := objects.WaitSynced(b.Context()); err != nil {
		b.Fatal(err)
	}
	return objects
}

// start returns a set without state, and its requests.
func (s benchSet) start(b *testing.B) (*owned.Set, *requestlog.Recording) {
	b.Helper()
	recording := &requestlog.Recording{}
	c, err := clustertest.Client(b, s.cluster, s.configs, s.services).With(func(config *client.Config) {
		config.Interceptors = []client.Interceptor{recording.Intercept}
	})
	if err != nil {
		b.Fatal(err)
	}
	set, err := owned.New(owned.Config{Client: c, Name: "bench", Kinds: []schema.GroupVersionKind{s.configs.Kind(), s.services.Kind()}})
	if err != nil {
		b.Fatal(err)
	}
	return set, recording
}

// waitFor waits until the informers show the children of n owners.
func (s benchSet) waitFor(b *testing.B, n int) {
	b.Helper()
	clustertest.Eventually(b, func() string {
		if s.configs.Len() < n || s.services.Len() < n {
			return fmt.Sprintf("the informers show %d and %d children", s.configs.Len(), s.services.Len())
		}
		return ""
	})
}

// bytesPerChild returns the bytes that the informers store for a child.
func (s benchSet) bytesPerChild() float64 {
	return float64(s.configs.Health().Bytes+s.services.Health().Bytes) / float64(s.configs.Len()+s.services.Len())
}

// BenchmarkSetAtRest measures a run of an idle set of two children. It must not depend on the number of owners: the
// informers find an owner's children by their labels, and do not visit the children of other owners. "restarted" is the
// first run of a process for each owner.
func BenchmarkSetAtRest(b *testing.B) {
	s := newBenchSet(b, "tests")
	set, _ := s.start(b)
	c := clustertest.Client(b, s.cluster)
	namespace := clustertest.Namespace(b, c)
	var owners []*corev1.Secret
	for _, n := range []int{10, 1000} {
		for i := len(owners); i < n; i++ {
			owners = append(owners, newBenchOwner(b, c, namespace, i))
			if _, err := set.Apply(b.Context(), owners[i], childrenOf(owners[i])...); err != nil {
				b.Fatal(err)
			}
		}
		s.waitFor(b, n)
		b.Run(fmt.Sprintf("owners=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				owner := owners[i%10]
				report, err := set.Apply(b.Context(), owner, childrenOf(owner)...)
				if err != nil || anyChange(report) {
					b.Fatalf("%v, %v", report, err)
				}
			}
		})
	}
	b.Run("restarted", func(b *testing.B) {
		fresh, recording := s.start(b)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			owner := owners[i%len(owners)]
			report, err := fresh.Apply(b.Context(), owner, childrenOf(owner)...)
			if err != nil || anyChange(report) {
				b.Fatalf("%v, %v", report, err)
			}
		}
		if requests := recording.Requests(); len(requests) > 0 {
			b.Errorf("%d requests were made", len(requests))
		}
		b.ReportMetric(s.bytesPerChild(), "B/child")
	})
	b.Run("without KeepAppliedBy", func(b *testing.B) {
		other := newBenchSet(b, "")
		for b.Loop() {
			other.waitFor(b, len(owners))
		}
		b.ReportMetric(other.bytesPerChild(), "B/child")
	})
}

func newBenchOwner(tb testing.TB, c *client.Client, namespace string, n int) *corev1.Secret {
	tb.Helper()
	owner, err := client.Create(tb.Context(), c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("owner-%d", n)}})
	if err != nil {
		tb.Error(err)
	}
	return owner
}

// BenchmarkResync measures resyncs of EVENKEEL_CHILDREN children (default 200): requests and CPU time of this process,
// without and with stored managedFields in the informers. Run it with -benchtime 1x.
func BenchmarkResync(b *testing.B) {
	children := 200
	if text := os.Getenv("EVENKEEL_CHILDREN"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		children = n
	}
	owners := make([]*corev1.Secret, children/2)
	first := newBenchSet(b, "")
	c := clustertest.Client(b, first.cluster)
	namespace := clustertest.Namespace(b, c)
	before, requests := first.start(b)
	each := func(b *testing.B, do func(n int) error) {
		b.Helper()
		const workers = 8
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				for n := w; n < len(owners); n += workers {
					if err := do(n); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	each(b, func(n int) error {
		owners[n] = newBenchOwner(b, c, namespace, n)
		_, err := before.Apply(b.Context(), owners[n], childrenOf(owners[n])...)
		return err
	})
	first.waitFor(b, len(owners))
	resync := func(name string, set *owned.Set, requests *requestlog.Recording) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				requests.Reset()
				began := cpuTime(b)
				each(b, func(n int) error {
					_, err := set.Apply(b.Context(), owners[n], childrenOf(owners[n])...)
					return err
				})
				b.ReportMetric(float64(len(requests.Requests())), "requests")
				b.ReportMetric((cpuTime(b) - began).Seconds(), "cpu-s")
			}
		})
	}
	resync("memory, at rest", before, requests)
	restarted, requests := first.start(b)
	resync("memory, after a restart", restarted, requests)
	second := newBenchSet(b, "tests")
	second.waitFor(b, len(owners))
	after, requests := second.start(b)
	resync("managedFields, after a restart", after, requests)
	resync("managedFields, at rest", after, requests)
	b.Logf("bytes of a child in the cache: %.0f without, %.0f with managedFields of the set", first.bytesPerChild(), second.bytesPerChild())
}

// cpuTime returns the CPU time of this process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func childrenOf(owner kube.Object) []owned.Child {
	meta := metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: owner.GetName()}
	return owned.Of(
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"greeting": "hello"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": owner.GetName()}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		}},
	)
}

// anyChange reports whether an apply has changed or deleted a child.
func anyChange(report owned.Report) bool {
	return slices.ContainsFunc(report.Results, func(r owned.Result) bool { return r.Outcome != owned.Unchanged })
}
