package status_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/status"
)

// Several writers each set their own condition and field of one object, from a state that is stale most of the time,
// while another client writes labels. A condition that a commit has reported as written stays until its writer sets it
// again.
func TestContract33_ConcurrentCommitsKeepAllConditions(t *testing.T) {
	const writers, rounds = 3, 200
	e := newEnv(t)
	shop := e.create("books")
	ctx, cancel := context.WithCancel(t.Context())
	var hands, all sync.WaitGroup
	hands.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			labeled := shop.copy()
			labeled.Labels = map[string]string{"round": fmt.Sprint(i)}
			if _, err := client.Patch(ctx, e.Client, shop, client.MergeFrom(shop, labeled)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	var conflicts atomic.Int32
	for w := range writers {
		all.Go(func() {
			name := fmt.Sprint("Writer", w)
			said := ""
			before := shop
			for round, tries := 0, 0; round < rounds; tries++ {
				live := e.live("books") //nolint:contextcheck // the context of another client
				// The last message of this writer is still there.
				if got := cmp.Or(meta.FindStatusCondition(live.Status.Conditions, name), &metav1.Condition{}); got.Message != said {
					t.Errorf("%s said %q, and now it says %q", name, said, got.Message)
					return
				}
				if tries%3 == 2 {
					before = live // otherwise it stays stale
				}
				after := before.copy()
				text := fmt.Sprint("round ", round)
				status.Set(&after.Status.Conditions, status.True(name, 1, "Round", text))
				after.round(name, round)
				_, err := status.Commit(ctx, e.Client, before, after)
				switch {
				case apierrors.IsConflict(err) && errors.Is(err, client.ErrChanged) && tries < 50*rounds:
					conflicts.Add(1) // five conflicts in a row: nothing was written, and the run is repeated
				case err != nil:
					t.Error(err)
					return
				default:
					said = text
					round++
				}
			}
			if got := e.live("books").Status.Rounds[name]; got != rounds-1 { //nolint:contextcheck // the context of another client
				t.Errorf("the field of %s is %d, want %d", name, got, rounds-1)
			}
		})
	}
	all.Wait()
	cancel()
	hands.Wait()
	t.Logf("%d commits, and %d that met five conflicts in a row", writers*rounds, conflicts.Load())
}

// Two controllers with the middleware on the same objects: each sets its condition for each generation. In the end both
// conditions exist, and nothing is written anymore.
func TestTwoControllersWithOwnConditions(t *testing.T) {
	e := newEnv(t)
	const shops = 10
	for i := range shops {
		e.create(fmt.Sprint("shop-", i))
	}
	var observers []*fixture.Calls
	var runs atomic.Int32
	for _, name := range []string{"Painted", "Heated"} {
		observer := newCalls()
		observers = append(observers, observer)
		clustertest.Run(t, controller.Config[*Shop]{
			Name:      "status-" + name,
			Retriever: informer.RetrieveSelected[*Shop](e.Cluster, kube.Selection{Namespaces: []string{e.Namespace}}),
			Handler: controller.Chain(func(_ context.Context, shop *Shop) error {
				runs.Add(1)
				status.Set(&shop.Status.Conditions, status.True(name, shop.Generation, "Done", ""))
				shop.round(name, len(shop.Labels))
				if shop.Labels["panic"] == name {
					panic("a handler's")
				}
				return nil
			}, func(next controller.Handler[*Shop]) controller.Handler[*Shop] {
				return func(ctx context.Context, shop *Shop) error {
					return next(kube.ObserveCalls(ctx, observer), shop)
				}
			}, middleware.Status(e.Client, middleware.StatusOptions[*Shop]{
				SetObservedGeneration: func(shop *Shop, generation int64) { shop.Status.ObservedGeneration = generation },
			})),
			Workers: 4, Runs: controller.RunsConfig{ConsistencyTimeout: 10 * time.Minute}, // even if the watch is late
		})
	}
	done := func(labels int) func() string {
		return func() string {
			for i := range shops {
				live := e.live(fmt.Sprint("shop-", i))
				for _, name := range []string{"Painted", "Heated"} {
					if got := cmp.Or(meta.FindStatusCondition(live.Status.Conditions, name), &metav1.Condition{}); got.Status != metav1.ConditionTrue || live.Status.Rounds[name] != labels {
						return fmt.Sprintf("%s is %+v", live.Name, live.Status)
					}
				}
				if len(live.Status.Conditions) != 2 || live.Status.ObservedGeneration != 1 {
					return fmt.Sprintf("%s is %+v", live.Name, live.Status)
				}
			}
			return ""
		}
	}
	clustertest.Eventually(t, done(0))
	for i := range shops {
		live := e.live(fmt.Sprint("shop-", i))
		labeled := live.copy()
		labeled.Labels = map[string]string{"panic": "Heated"}
		if _, err := client.Patch(t.Context(), e.Client, live, client.MergeFrom(live, labeled)); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, done(1)) // also the condition of the handler that panics
	for _, observer := range observers {
		observer.Take()
	}
	before, resourceVersion := runs.Load(), e.live("shop-0").ResourceVersion
	clustertest.Eventually(t, func() string { // the handler that panics is retried
		if n := runs.Load() - before; n < shops {
			return fmt.Sprintf("there were %d more runs", n)
		}
		return ""
	})
	for _, observer := range observers {
		if seen := observer.Take(); len(seen) > 0 {
			slices.Sort(seen)
			t.Errorf("at rest there are calls: %q", seen)
		}
	}
	if got := e.live("shop-0").ResourceVersion; got != resourceVersion {
		t.Errorf("at rest the resourceVersion moves: %s, %s", resourceVersion, got)
	}
}
