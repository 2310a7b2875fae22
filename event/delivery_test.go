package event_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// Both cases have status 403, but a Role helps only in one of them.
func TestRoleHintOnlyForMissingPermission(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cause metav1.CauseType
		hints int
	}{
		"missing permission":    {"", 1},
		"namespace terminating": {corev1.NamespaceTerminatingCause, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.answer = func(*http.Request) (*http.Response, error) {
					err := apierrors.NewForbidden(resource(), "web", errRefused)
					if test.cause != "" {
						err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: test.cause}}
					}
					return status(err), nil
				}
				recorder, logged := server.running(t, event.Config{})
				for i := range 100 { // one line for each namespace
					recorder.Event(pod(fmt.Sprint("web", i)), "Warning", "A", "B", "")
					time.Sleep(time.Minute)
				}
				if n := logged.with("level="); n != 1 || logged.with("level=WARN") != test.hints {
					t.Errorf("%d log lines, want 1: %q", n, logged.text)
				}
				if n := logged.with("a Role must allow"); n != test.hints {
					t.Errorf("%d Role hints, want %d", n, test.hints)
				}
			})
		})
	}
}

// The response to the create is lost, and the event is repeated before the next attempt.
func TestRepeatsDuringLostResponseAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		server.loseFirstResponse(t, func() {
			for range 4 { // before the next attempt
				recorder.Event(pod("web"), "Normal", "A", "B", "")
			}
		})
		testrun.Start(t, recorder.Run)
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Hour)
		if got := server.one(t); got.Series == nil || got.Series.Count != 5 {
			t.Errorf("the series is %+v, want a count of 5", got.Series)
		}
	})
}

// The log names the missing name as the cause, not the limits.
func TestObjectWithoutNameIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, recorder, logged := newRunning(t, event.Config{})
		generated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-"}}
		recorder.Normal(generated, "A", "B", "")
		recorder.Normal(nil, "A", "B", "")
		recorder.Event(corev1.ObjectReference{Kind: "Pod"}, "Normal", "A", "B", "")
		synctest.Wait()
		expectStats(t, recorder, event.Stats{Dropped: 3})
		if n := logged.with("it has no name"); n != 1 {
			t.Errorf("%d lines about the missing name, want 1", n)
		}
		if n := logged.with("too many events at once"); n != 0 {
			t.Errorf("%d lines about too many events", n)
		}
	})
}

// A server that does not respond counts as an outage, like one that refuses connections.
func TestEventsAreRetriedAfterTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.failFor(15*time.Second, hang)
		recorder, logged := server.running(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Minute)
		if diff := cmp.Diff(event.Stats{Sent: 1}, recorder.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s\n%q", diff, logged.text)
		}
	})
}

// Permanent failures must not increase the backoff of the next outage.
func TestPermanentFailuresDoNotIncreaseBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		failed := false
		server.answer = func(req *http.Request) (*http.Response, error) {
			switch {
			case strings.Contains(req.URL.Path, "/forbidden/"):
				return status(apierrors.NewForbidden(resource(), "", errRefused)), nil
			case !failed:
				failed = true
				return nil, errRefused
			}
			return nil, nil //nolint:nilnil // the fake server answers
		}
		recorder, _ := server.running(t, event.Config{})
		for i := range 20 {
			other := pod(fmt.Sprint("web", i))
			other.Namespace = "forbidden"
			recorder.Event(other, "Normal", "A", "B", "")
		}
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Second)
		if diff := cmp.Diff(event.Stats{Sent: 1, Failed: 20}, recorder.Stats()); diff != "" {
			t.Errorf("stats a second later (-want +got):\n%s", diff)
		}
	})
}

// A missing permission is logged once, and again if it is removed again.
func TestMissingPermissionIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		var mu sync.Mutex
		allowed := map[string]bool{} // "POST shop"; guarded by mu
		server.answer = func(req *http.Request) (*http.Response, error) {
			namespace := strings.Split(req.URL.Path, "/")[5]
			mu.Lock()
			defer mu.Unlock()
			if allowed[req.Method+" "+namespace] {
				return nil, nil //nolint:nilnil // the fake server answers
			}
			return status(apierrors.NewForbidden(resource(), "", errRefused)), nil
		}
		recorder, logged := server.running(t, event.Config{})
		number := 0
		say := func(namespace string, during time.Duration) {
			for began := time.Now(); time.Since(began) < during; time.Sleep(10 * time.Second) {
				number++
				about := pod(fmt.Sprint("web", number))
				about.Namespace = namespace
				recorder.Event(about, "Normal", "A", "B", "")
				synctest.Wait()
				recorder.Event(about, "Normal", "A", "B", "") // repeats are sent later
			}
		}
		for _, step := range []struct {
			namespace string
			allowed   []string
			want      int // total log lines
		}{
			{"shop", nil, 1},
			{"shop", nil, 1},
			{"bank", nil, 2},
			{"shop", []string{"POST shop"}, 3}, // patch is still forbidden
			{"shop", []string{"POST shop"}, 3},
			{"shop", []string{"POST shop", "PATCH shop"}, 3},
			{"shop", nil, 5}, // both permissions again
			{"bank", nil, 5},
		} {
			mu.Lock()
			clear(allowed)
			for _, verb := range step.allowed {
				allowed[verb] = true
			}
			mu.Unlock()
			say(step.namespace, 15*time.Minute)
			if got := logged.with("a Role must allow create and patch of events"); got != step.want {
				t.Errorf("%+v: %d log lines", step, got)
			}
		}
		// Many namespaces: at most one line per minute.
		for i := range 12 {
			say(fmt.Sprint("other-", i), 10*time.Second)
		}
		if got := logged.with("a Role must allow create and patch of events"); got != 7 {
			t.Errorf("%d lines for 12 namespaces in 2 minutes, want one a minute", got-5)
		}
	})
}
