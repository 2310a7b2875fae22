package manager

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// BenchmarkTakeOver measures how long a standby takes to lead after the leader released the lease, and from then on until it
// has handled the first and the last of 100,000 ConfigMaps of 1 KB. A cold standby lists them when it leads; the informer of a warm one runs in the group
// Caches. The settings of the lease are the default ones. The figures are medians; -benchtime 5x is the number of take-overs.
func BenchmarkTakeOver(b *testing.B) {
	const objects = 100_000
	config := local.RESTConfig()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	namespace, err := clients.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var creating sync.WaitGroup
	const clientsAtOnce = 16
	for first := range clientsAtOnce {
		creating.Go(func() { // waited for below
			for i := first; i < objects && !b.Failed(); i += clientsAtOnce {
				m := configMap(namespace.Name, fmt.Sprintf("shop-%06d", i))
				m.Data = map[string]string{"text": strings.Repeat("x", 700)}
				if _, err := clients.CoreV1().ConfigMaps(m.Namespace).Create(b.Context(), m, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	if creating.Wait(); b.Failed() {
		return
	}
	for _, warm := range []bool{false, true} {
		name := "cold"
		if warm {
			name = "warm"
		}
		b.Run(name, func(b *testing.B) {
			var waited, toFirst, toAll []float64 // seconds
			for n := range b.N {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprintf("%s-%d-%d", name, b.N, n)}}
				if _, err := clients.CoordinationV1().Leases(lease.Namespace).Create(b.Context(), lease, metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
				first := runTakeOver(b, lease, warm, objects)
				<-first.all
				second := runTakeOver(b, lease, warm, objects)
				second.untilStandby(b)
				first.stop() // it has released the lease
				began := time.Now()
				<-second.manager.Elected()
				waited = append(waited, time.Since(began).Seconds())
				elected := time.Now()
				<-second.first
				toFirst = append(toFirst, time.Since(elected).Seconds())
				<-second.all
				toAll = append(toAll, time.Since(elected).Seconds())
				second.stop()
			}
			b.ReportMetric(median(waited), "s-release-to-lead")
			b.ReportMetric(median(toFirst), "s-lead-to-first")
			b.ReportMetric(median(toAll), "s-lead-to-all")
			b.ReportMetric(0, "ns/op")
			b.Logf("release to lead %.3f, lead to first %.3f, lead to all %.3f", waited, toFirst, toAll)
		})
	}
}

// takeOver is a replica of BenchmarkTakeOver.
type takeOver struct {
	manager    *manager.Manager
	first, all chan struct{} // closed when the first handler was called, and when all objects were handled
	stop       func()
}

func runTakeOver(b *testing.B, lease *coordinationv1.Lease, warm bool, objects int64) *takeOver {
	b.Helper()
	r := &takeOver{first: make(chan struct{}), all: make(chan struct{})}
	cluster := clustertest.Connect(b, local.RESTConfig())
	retriever := informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{lease.Namespace}, FieldSelector: "metadata.name!=kube-root-ca.crt"})
	var handled atomic.Int64
	config := controller.Config[*corev1.ConfigMap]{
		Name: "shops", Retriever: retriever, Logger: slog.New(slog.DiscardHandler), Workers: 4,
		Handler: func(context.Context, *corev1.ConfigMap) error {
			switch handled.Add(1) {
			case 1:
				close(r.first)
			case objects:
				close(r.all)
			}
			return nil
		},
	}
	var runnables []manager.Runnable
	if warm {
		cache, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "shops", Retriever: retriever, Logger: config.Logger})
		if err != nil {
			b.Fatal(err)
		}
		config.Retriever, config.Informer = nil, cache
		runnables = append(runnables, manager.Runnable{Name: "cache", Runner: cache, Group: manager.Caches})
	}
	ctrl, err := controller.New(config)
	if err != nil {
		b.Fatal(err)
	}
	r.manager, err = manager.New(manager.Config{
		IgnoreSignals: true, Logger: config.Logger, Runnables: append(runnables, manager.Runnable{Runner: ctrl}),
		LeaderElection: &leader.Config{Cluster: cluster, Namespace: lease.Namespace, Name: lease.Name},
	})
	if err != nil {
		b.Fatal(err)
	}
	r.stop = testrun.Start(b, r.manager.Run)
	return r
}

// untilStandby waits until the replica is a ready standby: with a filled cache if it is warm.
func (r *takeOver) untilStandby(b *testing.B) {
	b.Helper()
	clustertest.Eventually(b, func() string {
		if at := r.manager.Leadership(); !at.Standby || at.Leader == "" {
			return fmt.Sprint(at)
		}
		return errorText(r.manager.Ready())
	})
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
