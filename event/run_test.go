package event_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

func TestContract18_EventsAreSentAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.failFor(10*time.Second, func(req *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Post", URL: req.URL.String(), Err: errRefused}
		})
		recorder, logged := server.running(t, event.Config{})
		for i := range 5 {
			recorder.Event(pod(fmt.Sprint("web", i)), "Normal", "A", "B", "")
		}
		time.Sleep(time.Minute)
		expectStats(t, recorder, event.Stats{Sent: 5})
		if got := logged.with("class=transient"); got != 1 {
			t.Errorf("the outage was logged %d times, want once", got)
		}
	})
}

func TestEventFailsAfterRetryTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.answer = func(*http.Request) (*http.Response, error) { return nil, errRefused }
		recorder, _ := server.running(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(3 * time.Minute)
		expectStats(t, recorder, event.Stats{Failed: 2})
		server.answer = nil
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		synctest.Wait()
		if got := server.one(t).Series; got != nil {
			t.Errorf("the next event continues with %v, want a new Event", got)
		}
	})
}

func TestRetryAfterIsRespected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.failFor(7*time.Second, func(*http.Request) (*http.Response, error) {
			return status(apierrors.NewTooManyRequests("slower", 7)), nil
		})
		recorder, _ := server.running(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"0s POST", "7s POST"}, server.log()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestForbiddenEventsAreCountedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.answer = func(*http.Request) (*http.Response, error) {
			return status(apierrors.NewForbidden(resource(), "", errors.New("no Role"))), nil
		}
		recorder, logged := server.running(t, event.Config{})
		for i := range 150 { // one a second
			recorder.Event(pod(fmt.Sprint("web", i)), "Normal", "A", "B", "")
			time.Sleep(time.Second)
		}
		expectStats(t, recorder, event.Stats{Failed: 150})
		if got := len(server.log()); got != 150 {
			t.Errorf("%d requests, want one for each event, without retries", got)
		}
		if got := logged.with("class=forbidden"); got != 1 {
			t.Errorf("logged %d times in 150 s, want once", got)
		}
		if got := logged.with("a Role must allow create and patch of events"); got != 1 {
			t.Errorf("%d lines with the Role hint, want 1", got)
		}
	})
}

func TestLostResponseCreatesNoSecondEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.loseFirstResponse(t, func() {})
		recorder, _ := server.running(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Minute)
		server.one(t)
		expectStats(t, recorder, event.Stats{Sent: 1})
	})
}

func TestEventsBeforeRunAreSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		testrun.Start(t, recorder.Run)
		synctest.Wait()
		if diff := cmp.Diff([]string{"web A x2"}, server.list()); diff != "" {
			t.Errorf("Events in the server (-want +got):\n%s", diff)
		}
	})
}

func TestRunFlushesEventsAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.answer = func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return nil, nil //nolint:nilnil // the fake server answers
		}
		recorder, _ := server.recorder(t, event.Config{})
		stop := testrun.Start(t, recorder.Run)
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Second)
		recorder.Event(pod("web"), "Normal", "A", "B", "") // without the flush it would wait 5 min
		for i := range 3 {
			recorder.Event(pod(fmt.Sprint("db", i)), "Normal", "A", "B", "")
		}
		stop()
		if elapsed := time.Since(server.start); elapsed != 1400*time.Millisecond {
			t.Errorf("the call took until %s, want 1.4s: no longer than the requests", elapsed)
		}
		expectStats(t, recorder, event.Stats{Sent: 5})
	})
}

func TestFlushTimeout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout time.Duration
		answer  func(*http.Request) (*http.Response, error)
		want    time.Duration
	}{
		"default, silent server":  {0, hang, 2 * time.Second},
		"5 s, silent server":      {5 * time.Second, hang, 5 * time.Second},
		"none, silent server":     {-1, hang, 0},
		"default, server is gone": {0, func(*http.Request) (*http.Response, error) { return nil, errRefused }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.answer = test.answer
				recorder, logged := server.recorder(t, event.Config{FlushTimeout: test.timeout})
				stop := testrun.Start(t, recorder.Run)
				for i := range 5 {
					recorder.Event(pod(fmt.Sprint("web", i)), "Normal", "A", "B", "")
				}
				synctest.Wait()
				stop()
				if elapsed := time.Since(server.start); elapsed != test.want {
					t.Errorf("the call took %s, want %s", elapsed, test.want)
				}
				stats := recorder.Stats()
				if stats.Sent != 0 || stats.Dropped+stats.Failed != 5 {
					t.Errorf("stats are %+v, want 5 dropped or failed", stats)
				}
				if stats.Dropped > 0 && logged.with("events dropped") != 1 {
					t.Error("the events dropped at the end are not logged")
				}
			})
		})
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		stop := testrun.Start(t, recorder.Run)
		synctest.Wait()
		if err := recorder.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("a second Run at the same time: %v, want an error", err)
		}
		stop()
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		testrun.Start(t, recorder.Run)
		synctest.Wait()
		server.one(t)
	})
}

func TestEventsAreNotSentAfterLossOfLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		held := leadership.New(nil, time.Hour)
		ctx, cancel := leadership.With(t.Context(), held)
		defer cancel()
		recorder, _ := server.recorder(t, event.Config{})
		stop := start(t, ctx, recorder)
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		synctest.Wait()
		held.Lose(errors.New("another process leads"))
		recorder.Event(pod("db"), "Normal", "A", "B", "")
		stop()
		if diff := cmp.Diff([]string{"web A x1"}, server.list()); diff != "" {
			t.Errorf("Events in the server (-want +got):\n%s", diff)
		}
	})
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := event.New(event.Config{
		Controller: "shop operator", QueueSize: -1, ObjectBurst: -1, RepeatInterval: -1,
	})
	if err == nil {
		t.Fatal("New returned no error")
	}
	for _, want := range []string{
		"Cluster is required", `Controller "shop operator" is not a valid`,
		"QueueSize is -1", "ObjectBurst is -1", "RepeatInterval is -1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if _, err := event.New(event.Config{}); err == nil || !strings.Contains(err.Error(), "Controller is required") {
		t.Errorf("without a Controller: %v", err)
	}
}

// eventRecorder is controller.EventRecorder, which this package must not import.
type eventRecorder interface {
	Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
}

var _ eventRecorder = (*event.Recorder)(nil)

// Events that are dropped at the end of Run are logged with that reason, also when others were dropped by a limit
// shortly before.
func TestEventsDroppedAtTheEndAreLogged(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(held *leadership.Term, stop func()){
		"flush timeout": func(_ *leadership.Term, stop func()) { stop() },
		"leadership lost": func(held *leadership.Term, stop func()) {
			held.Lose(errors.New("another process leads"))
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				held := leadership.New(nil, time.Hour)
				ctx, cancel := leadership.With(t.Context(), held)
				defer cancel()
				recorder, logged := server.recorder(t, event.Config{QueueSize: 2})
				stop := start(t, ctx, recorder)
				for i := range 10 { // the queue has room for two
					recorder.Event(pod(fmt.Sprint("web", i)), "Normal", "A", "B", "")
				}
				synctest.Wait()
				recorder.Event(pod("db"), "Normal", "A", "B", "")
				synctest.Wait()
				server.answer = hang
				for i := range 3 {
					recorder.Event(pod(fmt.Sprint("late", i)), "Normal", "A", "B", "")
					synctest.Wait()
				}
				end(held, stop)
				held.Release()
				if limits, atEnd := logged.with("too many events at once"), logged.with("ended before they were sent"); limits != 1 || atEnd != 1 {
					t.Errorf("%d lines about limits and %d about the end, want one of each; stats %+v", limits, atEnd, recorder.Stats())
				}
			})
		})
	}
}
