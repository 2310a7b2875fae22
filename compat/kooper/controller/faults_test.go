package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestRunTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := &attempts{}
		ctrl, stop := runController(t, controller.Config{
			Name: "twice", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))}, Handler: runs.failing(nil),
		})
		time.Sleep(time.Second)
		if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("the second Run returned %v", err)
		}
		if err := stop(); err != nil || len(runs.take()) != 1 {
			t.Errorf("Run returned %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ctrl.Run(ctx); err != nil || len(runs.take()) != 1 {
			t.Errorf("Run after the end of the first one returned %v", err)
		}
	})
}

func TestContextEndsBeforeFirstList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{list: func(metav1.ListOptions) (runtime.Object, error) { return nil, errors.New("no list yet") }}
		stop := run(t, controller.Config{Name: "early", Retriever: s, Handler: (&attempts{}).failing(nil)})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestHandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		stop := run(t, controller.Config{
			Name: "ignores", Retriever: configMaps{fake.NewClientset(configMap("web", "0"))},
			Handler: controller.HandlerFunc(func(context.Context, runtime.Object) error { <-end; return nil }),
		})
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "shop/web") || time.Since(began) > 30*time.Second {
			t.Errorf("Run returned %v after %s", err, time.Since(began))
		}
		close(end)
	})
}

// newest is a handler that fails and panics at random, and records the latest state that it has handled.
type newest struct {
	random *rand.Rand // guarded by mu

	mu      sync.Mutex
	handled map[string]string // guarded by mu; the data of each Pod
}

func (n *newest) Handle(_ context.Context, obj runtime.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.random.IntN(10) {
	case 0:
		return errors.New("at random")
	case 1:
		panic("at random")
	}
	pod := obj.(*corev1.Pod)
	n.handled[pod.Name] = pod.Annotations["data"]
	pod.Annotations["data"] = "changed by the handler"
	return nil
}

// Watches end or send nothing for some time, lists fail, handlers fail and panic. In the end every object was
// handled with its last state, and nothing is kept of deleted objects.
func TestNoChangeIsLostInFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				s := kindserver.New[*corev1.Pod](apitest.Pods(), false)
				n := &newest{random: rand.New(rand.NewPCG(seed, 1)), handled: map[string]string{}}
				ctrl, _ := runController(t, controller.Config{
					Name: "faults", Retriever: s, Handler: n, ProcessingJobRetries: 1000, DisableResync: true,
				})
				want := map[string]string{}
				for step := range 600 {
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					name := fmt.Sprint("p", random.IntN(10))
					switch random.IntN(12) {
					case 0:
						s.DropWatches()
					case 1:
						s.Fail([]string{"list", "watch"}[random.IntN(2)], apierrors.NewInternalError(errors.New("at random")))
					case 2:
						s.Fail([]string{"list", "watch"}[random.IntN(2)], apierrors.NewResourceExpired("at random"))
					case 3:
						s.Fail("list", nil)
						s.Fail("watch", nil)
					case 4:
						if _, exists := want[name]; exists {
							s.Delete(kube.Key{Namespace: "shop", Name: name})
							delete(want, name)
						}
					case 5:
						s.Mute(random.IntN(2) == 0)
					default:
						want[name] = fmt.Sprint(step)
						s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
							Namespace: "shop", Name: name, Annotations: map[string]string{"data": want[name]},
						}})
					}
				}
				s.Fail("list", nil)
				s.Fail("watch", nil)
				s.Mute(false)
				time.Sleep(time.Hour)
				n.mu.Lock()
				defer n.mu.Unlock()
				for name, data := range want {
					if n.handled[name] != data {
						t.Errorf("%s was handled with %q, want %q", name, n.handled[name], data)
					}
				}
				if kept := controller.KeptStates(ctrl); kept != len(want) {
					t.Errorf("%d states are kept, want %d", kept, len(want))
				}
			})
		})
	}
}

// The lease is lost again and again, while the next replica waits.
func TestOnlyOneReplicaHandlesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newElection(configMap("web", "0"))
		var running, runs atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		for n := range 2 {
			runner := e.runner(t)
			replicas.Go(func() {
				for ctx.Err() == nil { // a process that is started again
					ctrl, err := controller.New(&controller.Config{
						Name: fmt.Sprint("replica", n), Retriever: e.configMaps, LeaderElector: runner, Logger: log.Dummy,
						Handler: controller.HandlerFunc(func(ctx context.Context, _ runtime.Object) error {
							if running.Add(1) > 1 {
								t.Error("two replicas handle at once")
							}
							defer running.Add(-1)
							runs.Add(1)
							<-ctx.Done()
							return nil
						}),
					})
					if err != nil {
						t.Error(err)
						return
					}
					_ = ctrl.Run(ctx)
				}
			})
		}
		for range 10 {
			time.Sleep(time.Minute)
			e.fails.Store(true)
			time.Sleep(14 * time.Second)
			e.fails.Store(false)
		}
		time.Sleep(time.Minute)
		stop()
		replicas.Wait()
		if runs.Load() < 10 {
			t.Errorf("%d runs, want one in each term", runs.Load())
		}
	})
}
