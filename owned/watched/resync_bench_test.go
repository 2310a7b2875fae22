package watched_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

const applier = "tests"

// BenchmarkResync measures a resync with EVENKEEL_CHILDREN children (default 1000) of as many owners: the applies, and
// the CPU time of the process, which includes the server. With "memory" the informer keeps no managedFields. Run it
// with -benchtime 1x.
func BenchmarkResync(b *testing.B) {
	n := 1000
	if text := os.Getenv("EVENKEEL_CHILDREN"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	newServer := func() *apitest.Server { return apitest.New(apiserver.ConfigMaps(), apiserver.Secrets()) }
	empty, full := newServer(), newServer()
	owners := make([]*corev1.Secret, n)
	for i := range owners {
		owners[i] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("owner-", i), UID: types.UID(fmt.Sprintf("4d0d5b44-8d9f-4a5a-8f0b-%012x", i)), ResourceVersion: "1",
		}}
	}
	start := func(shown *apitest.Server, keep string) (*owned.Set, *informer.Informer[*corev1.ConfigMap]) {
		objects, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](connectTo(b, shown)), KeepAppliedBy: keep,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(objects.Join(b.Context()))
		if err := objects.WaitSynced(b.Context()); err != nil {
			b.Fatal(err)
		}
		c, err := client.New(client.Config{Cluster: connectTo(b, full), FieldOwner: applier, Informers: []client.Informer{objects}})
		if err != nil {
			b.Fatal(err)
		}
		set, err := owned.New(owned.Config{Client: c, Name: "bench", Kinds: []schema.GroupVersionKind{objects.Kind()}})
		if err != nil {
			b.Fatal(err)
		}
		return set, objects
	}
	resync := func(b *testing.B, set *owned.Set) {
		b.Helper()
		applies, began := full.Count("patch"), usedCPU(b)
		for _, owner := range owners {
			_, err := set.Apply(b.Context(), owner, owned.Of(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: owner.Name, Labels: map[string]string{"app": "web"}},
				Data:       map[string]string{"greeting": "hello", "colour": "blue"},
			})...)
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(full.Count("patch")-applies), "applies")
		b.ReportMetric((usedCPU(b) - began).Seconds(), "cpu-s")
	}
	creating, _ := start(empty, "")
	resync(b, creating)
	for _, how := range []struct{ name, keep string }{{"memory", ""}, {"managedFields", applier}} {
		set, objects := start(full, how.keep)
		for _, when := range []string{"after a restart", "at rest"} {
			b.Run(how.name+" "+when, func(b *testing.B) {
				for b.Loop() {
					resync(b, set)
				}
				b.ReportMetric(float64(objects.Health().Bytes)/float64(n), "B/child")
			})
		}
	}
}

func connectTo(b *testing.B, server *apitest.Server) *kube.Cluster {
	b.Helper()
	cluster, err := kube.Connect(server.Config("bench"))
	if err != nil {
		b.Fatal(err)
	}
	return cluster
}

func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
