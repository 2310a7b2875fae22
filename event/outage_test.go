package event_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// failures are temporary failures of all requests for namespace "broken".
func failures() map[string]func(*http.Request) (*http.Response, error) {
	return map[string]func(*http.Request) (*http.Response, error){
		"refused": func(*http.Request) (*http.Response, error) { return nil, errRefused },
		"unavailable": func(*http.Request) (*http.Response, error) {
			return status(apierrors.NewServiceUnavailable("")), nil
		},
		"throttled": func(*http.Request) (*http.Response, error) {
			return status(apierrors.NewTooManyRequests("", 3600)), nil
		},
		"silent": hang,
	}
}

func in(namespace, name string) corev1.ObjectReference {
	ref := pod(name)
	ref.Namespace = namespace
	return ref
}

// failing returns a server for which the requests of one namespace fail as long as the result of broken is true.
func failing(fail func(*http.Request) (*http.Response, error), broken func(elapsed time.Duration) bool) *apiServer {
	server := newAPIServer()
	server.answer = func(req *http.Request) (*http.Response, error) {
		if strings.Contains(req.URL.Path, "/namespaces/broken/") && broken(time.Since(server.start)) {
			return fail(req)
		}
		return nil, nil //nolint:nilnil // the fake server answers
	}
	return server
}

// Namespaces that hang only at the shutdown take no time of the others.
func TestHangingNamespaceDoesNotHoldFlushOfOthers(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"answers": 0, "slow answers": 150 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.answer = func(req *http.Request) (*http.Response, error) {
					if strings.Contains(req.URL.Path, "/namespaces/hangs") {
						return hang(req)
					}
					time.Sleep(delay)
					return nil, nil //nolint:nilnil // the fake server answers
				}
				recorder, _ := server.recorder(t, event.Config{})
				stop := testrun.Start(t, recorder.Run)
				for i := range 3 {
					for _, namespace := range []string{"hangs-1", "hangs-2", "default"} {
						recorder.Event(in(namespace, fmt.Sprint("web", i)), "Normal", "A", "B", "")
					}
				}
				synctest.Wait() // one request hangs before the shutdown
				stop()
				if elapsed := time.Since(server.start); elapsed != 2*time.Second {
					t.Errorf("the flush took %s", elapsed)
				}
				if stats := recorder.Stats(); stats.Sent != 3 || stats.Dropped+stats.Failed != 6 {
					t.Errorf("stats %+v, want 3 sent", stats)
				}
			})
		})
	}
}

// The events of a namespace that fails wait and fail by themselves, and are sent when it works again.
func TestFailingNamespaceDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	const outage = 20 * time.Minute
	for name, fail := range failures() { //nolint:bodyclose // the client closes it
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := failing(fail, func(elapsed time.Duration) bool { return elapsed < outage })
				recorder, _ := server.running(t, event.Config{QueueSize: 20})
				recorder.Event(in("broken", "first"), "Normal", "A", "B", "")
				time.Sleep(11 * time.Second) // the time limit of a request: until then nothing shows the failure
				for n := 0; time.Since(server.start) < outage; n++ {
					for i := range 3 { // more than the queue can hold
						recorder.Event(in("broken", fmt.Sprint("web", n, "-", i)), "Normal", "A", "B", "")
					}
					recorder.Event(in("shop", fmt.Sprint("web", n)), "Normal", "A", "B", "")
					recorder.Event(in("shop", fmt.Sprint("web", n)), "Normal", "A", "B", "") // a repeat, sent later
					time.Sleep(100 * time.Millisecond)
					if stats := recorder.Stats(); stats.Sent < uint64(n+1) {
						t.Fatalf("%d events of the other namespace were sent within 100 ms, want %d", stats.Sent, n+1)
					}
					time.Sleep(5 * time.Second)
				}
				time.Sleep(2 * time.Minute) // the longest backoff, and the events that wait
				before := recorder.Stats().Sent
				for i := range 10 {
					recorder.Event(in("broken", fmt.Sprint("last", i)), "Normal", "A", "B", "")
				}
				time.Sleep(time.Second)
				lasts := 0
				for _, line := range server.list() {
					if strings.HasPrefix(line, "last") {
						lasts++
					}
				}
				if lasts != 10 || recorder.Stats().Sent < before+10 {
					t.Errorf("%d events of the namespace were sent after the outage, want 10", lasts)
				}
			})
		})
	}
}

// A waiting event of a failing namespace gives way to one of another namespace, but not the other way round.
func TestFailingNamespaceDoesNotFillQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := failures()["refused"] //nolint:bodyclose // it has none
		server := failing(refused, func(time.Duration) bool { return true })
		recorder, _ := server.recorder(t, event.Config{QueueSize: 3, ObjectBurst: 100})
		stop := testrun.Start(t, recorder.Run)
		recorder.Event(in("broken", "first"), "Normal", "A", "B", "")
		synctest.Wait()
		for i := range 10 {
			recorder.Event(in("broken", fmt.Sprint("web", i)), "Normal", "A", "B", "")
		}
		synctest.Wait()
		expectStats(t, recorder, event.Stats{Dropped: 8})
		for i := range 5 { // before the Recorder can send one
			recorder.Event(in("shop", fmt.Sprint("web", i)), "Normal", "A", "B", "")
		}
		synctest.Wait()
		if stats := recorder.Stats(); stats.Sent < 3 {
			t.Errorf("stats are %+v, want at least 3 sent", stats)
		}
		stop()
		if stats := recorder.Stats(); stats.Sent+stats.Dropped+stats.Failed != 16 {
			t.Errorf("stats are %+v, want 16 events in all", stats)
		}
	})
}

// The events of a failing namespace are kept for about 2 min, so that they do not fill the memory.
func TestEventsOfFailingNamespaceExpire(t *testing.T) {
	t.Parallel()
	for name, fail := range failures() { //nolint:bodyclose // the client closes it
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := failing(fail, func(time.Duration) bool { return true })
				recorder, _ := server.running(t, event.Config{})
				for i := range 40 {
					recorder.Event(in("broken", fmt.Sprint("web", i)), "Normal", "A", "B", "")
				}
				time.Sleep(3 * time.Minute)
				if diff := cmp.Diff(event.Stats{Failed: 40}, recorder.Stats()); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
				if requests := len(server.log()); requests > 20 {
					t.Errorf("%d requests", requests)
				}
			})
		})
	}
}

// An Event that was created before the outage is patched after it.
func TestRepeatsAreSentAfterOutageOfNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := failing(func(*http.Request) (*http.Response, error) { return nil, errors.New("EOF") },
			func(elapsed time.Duration) bool { return elapsed > time.Second && elapsed < 330*time.Second })
		recorder, _ := server.running(t, event.Config{})
		for range 3 {
			recorder.Event(in("broken", "web"), "Normal", "A", "B", "")
		}
		time.Sleep(10 * time.Minute)
		if got := server.list(); len(got) != 1 || got[0] != "web A x3" {
			t.Errorf("the Events are %q", got)
		}
	})
}

// A repeat whose time was before the outage waits for a minute too.
func TestRepeatInOutageWaitsForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		var broken, last atomic.Bool
		server.answer = func(req *http.Request) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "/namespaces/broken/") && broken.Load() {
				if last.Load() {
					broken.Store(false)
				}
				return nil, errRefused
			}
			return nil, nil
		}
		recorder, _ := server.running(t, event.Config{})
		recorder.Event(in("broken", "a"), "Normal", "A", "B", "")
		time.Sleep(6 * time.Minute) // its next update is due since a minute
		broken.Store(true)
		began := time.Now()
		for i := 0; time.Since(began) < 61*time.Second; i++ {
			recorder.Event(in("broken", fmt.Sprint("b", i)), "Normal", "A", "B", "")
			time.Sleep(time.Second)
		}
		repeated := time.Now()
		recorder.Event(in("broken", "a"), "Normal", "A", "B", "") // a repeat
		last.Store(true)                                          // one more request fails
		for broken.Load() {
			time.Sleep(time.Second)
		}
		waited := time.Since(repeated)
		time.Sleep(5 * time.Minute)
		if waited < 50*time.Second && !slices.Contains(server.list(), "a A x2") {
			t.Errorf("the repeat was given up after %s: %v, %+v", waited, server.list()[:1], recorder.Stats())
		}
	})
}

func TestEventWithoutBudgetDropsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := failing(failures()["refused"], func(time.Duration) bool { return true }) //nolint:bodyclose // it has none
		recorder, _ := server.running(t, event.Config{QueueSize: 3, ObjectBurst: 1})
		recorder.Event(in("shop", "noisy"), "Normal", "A", "B", "") // takes the budget
		recorder.Event(in("broken", "first"), "Normal", "A", "B", "")
		synctest.Wait()
		for i := range 2 {
			recorder.Event(in("broken", fmt.Sprint("web", i)), "Normal", "A", "B", "")
		}
		synctest.Wait()
		before := recorder.Stats().Dropped
		recorder.Event(in("shop", "noisy"), "Normal", "Other", "B", "")
		if n := recorder.Stats().Dropped - before; n != 1 {
			t.Errorf("%d events were dropped, want only the one without budget", n)
		}
	})
}

// Events that the full queue drops do not use up the limit of their object.
func TestFullQueueTakesNothingFromLimitOfObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{QueueSize: 2})
		for i := range 30 {
			recorder.Event(in("shop", "web"), "Normal", fmt.Sprint("R", i), "B", "")
		}
		testrun.Start(t, recorder.Run)
		time.Sleep(time.Second)
		before := recorder.Stats()
		recorder.Event(in("shop", "web"), "Normal", "Later", "B", "")
		synctest.Wait()
		if after := recorder.Stats(); after.Sent != before.Sent+1 {
			t.Errorf("the queue is empty, and the event was not sent: %+v", after)
		}
	})
}

// At the end, a failing namespace that hangs does not hold back another one that had failed.
func TestHangingNamespaceDoesNotHoldFlushOfOneThatHadFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		var broken, hanging atomic.Bool
		broken.Store(true)
		server.answer = func(req *http.Request) (*http.Response, error) {
			switch {
			case strings.Contains(req.URL.Path, "/namespaces/blip/") && broken.Load():
				return nil, errRefused
			case strings.Contains(req.URL.Path, "/namespaces/hangs/") && hanging.Load():
				return hang(req)
			}
			return nil, nil
		}
		recorder, _ := server.recorder(t, event.Config{FlushTimeout: 10 * time.Second})
		stop := testrun.Start(t, recorder.Run)
		recorder.Event(in("blip", "a"), "Normal", "A", "B", "")
		synctest.Wait()
		broken.Store(false)
		hanging.Store(true)
		for i := range 3 {
			recorder.Event(in("hangs", fmt.Sprint("h", i)), "Normal", "A", "B", "")
			recorder.Event(in("blip", fmt.Sprint("b", i)), "Normal", "A", "B", "")
		}
		stop()
		if n := len(server.list()); n != 4 {
			t.Errorf("%d events were sent, want 4 of the namespace that works again: %+v", n, recorder.Stats())
		}
	})
}
