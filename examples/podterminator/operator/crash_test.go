package operator

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

// The writes of a first round with two victims, in this order: finalizer, plan, two marks, two deletions, result.
const (
	writesOfARound = 7
	firstDeletion  = 5
)

func TestCrashAtAnyRequestEndsOnlyPlannedPods(t *testing.T) {
	t.Parallel()
	for n := 1; n <= writesOfARound; n++ {
		for _, arrives := range []bool{false, true} {
			name := fmt.Sprintf("before request %d", n)
			if arrives {
				name = fmt.Sprintf("before the response to request %d", n)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				everywhere(t, func(t place) {
					f := newFixture(t, 4)
					before := f.alive(t.Context())
					f.create(f.terminator(50, time.Hour))
					f.operateUntilCrash(n, arrives)

					f.operate(nil, Config{})
					pt := f.afterRound(1)
					after := f.alive(t.Context())
					if len(after) != 2 {
						t.Errorf("%d of %d Pods are alive, want 2", len(after), len(before))
					}
					if pt.Status.Rounds != 1 || pt.Status.TerminatedTotal != 2 || len(pt.Status.LastTerminated) != 2 {
						t.Errorf("the status counts %d rounds, %d ended Pods, %v; want 1 and 2",
							pt.Status.Rounds, pt.Status.TerminatedTotal, pt.Status.LastTerminated)
					}
					for _, p := range pt.Status.LastTerminated {
						if _, ok := after[p.UID]; ok {
							t.Errorf("Pod %s is alive, but the status says that it was ended", p.Name)
						}
					}
					if marked := f.marked(); len(marked) > 0 {
						t.Errorf("Pods %v are alive and marked", marked)
					}
				})
			})
		}
	}
}

// After a crash, a plan in the status is completed or its victims are spared, depending on the current Pods.
func TestMinAliveIsCheckedAfterCrash(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 4)
		pt := f.terminator(50, time.Hour)
		pt.Spec.MinAlive = 2
		f.create(pt)
		f.operateUntilCrash(firstDeletion, false)

		// While no operator runs, a Pod that was not chosen ends.
		planned := map[string]bool{}
		for _, v := range f.get(t.Context()).Status.Plan.Victims {
			planned[v.Name] = true
		}
		for _, pod := range f.alive(t.Context()) {
			if !planned[pod.Name] {
				if err := f.pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		f.operate(nil, Config{})
		got := f.afterRound(1)
		if n := len(f.alive(t.Context())); n != 2 {
			t.Errorf("%d Pods are alive, want the 2 of minAlive", n)
		}
		if got.Status.TerminatedTotal != 1 {
			t.Errorf("%d Pods were ended, want 1", got.Status.TerminatedTotal)
		}
		if marked := f.marked(); len(marked) > 0 {
			t.Errorf("Pods %v were spared, but are marked", marked)
		}
	})
}

// If a PodTerminator is deleted during a round, no further Pods are ended, and its marks are removed.
func TestDeletionDuringRoundSparesPods(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 4)
		f.create(f.terminator(50, time.Hour))
		f.operateUntilCrash(firstDeletion, false)
		if n := len(f.marked()); n != 2 {
			t.Fatalf("%d Pods are marked at the crash, want 2", n)
		}
		f.delete()
		f.operate(nil, Config{})
		f.until("the PodTerminator is gone", func(pt *v1alpha1.PodTerminator) bool { return pt == nil })
		if n := len(f.alive(t.Context())); n != 4 {
			t.Errorf("%d Pods are alive, want all 4", n)
		}
		if marked := f.marked(); len(marked) > 0 {
			t.Errorf("Pods %v are still marked", marked)
		}
	})
}

// The period also applies after a round that was interrupted for long.
func TestPeriodAfterResumedRound(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 8)
		f.create(f.terminator(25, time.Hour))
		f.operateUntilCrash(firstDeletion, false)

		down := f.get(t.Context())
		longAgo := metav1.NewMicroTime(time.Now().Add(-2 * time.Hour))
		down.Status.LastRun = &longAgo
		err := terminators(t).Put().Namespace(f.namespace).Resource(v1alpha1.Resource).Name(down.Name).SubResource("status").
			Body(down).Do(t.Context()).Error()
		if err != nil {
			t.Fatalf("let two hours pass: %v", err)
		}
		second := time.Now()
		f.operate(nil, Config{})
		status := f.afterRound(1).Status
		if status.LastRun.Time.Before(second.Truncate(time.Microsecond)) || !status.NextRun.Time.Equal(status.LastRun.Add(time.Hour)) {
			t.Errorf("resumed at %s, the round counts as begun at %s, and the next is due at %s; want an hour in between",
				second, status.LastRun, status.NextRun)
		}
		if n := len(f.alive(t.Context())); n != 6 || status.Rounds != 1 {
			t.Errorf("after %d rounds %d Pods are alive, want 6 after one", status.Rounds, n)
		}
	})
}

var errCrashed = errors.New("the process has crashed")

// crasher passes some writes, and then no more, as if the process had crashed: the last write does not arrive, or its
// response is lost.
type crasher struct {
	at      int
	arrives bool
	crashed chan struct{} // closed at the crash

	mu     sync.Mutex
	writes int // guarded by mu
}

// operateUntilCrash runs an operator that crashes before its nth write, or before the response to it.
func (f *fixture) operateUntilCrash(n int, arrives bool) {
	f.t.Helper()
	crash := &crasher{at: n, arrives: arrives, crashed: make(chan struct{})}
	stop := f.operate(crash.wrap, Config{})
	select {
	case <-crash.crashed:
	case <-time.After(2 * time.Minute):
		f.t.Fatalf("there was no write %d in two minutes", n)
	}
	stop()
}

func (c *crasher) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodGet {
				return next.RoundTrip(request)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.writes++
			switch {
			case c.writes > c.at:
				return nil, errCrashed
			case c.writes < c.at:
				return next.RoundTrip(request)
			}
			defer close(c.crashed)
			if c.arrives {
				response, err := next.RoundTrip(request)
				if err != nil {
					return nil, err
				}
				_ = response.Body.Close() // not read
			}
			return nil, errCrashed
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
