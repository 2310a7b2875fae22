package event_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

func TestEventIsCreated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		recorder.Event(pod("web"), "Warning", "Stalled", "Retry", "the database is away")
		synctest.Wait()
		got := server.one(t)
		if !strings.HasPrefix(got.Name, "web.") {
			t.Errorf("the name is %q, want web.<time>", got.Name)
		}
		if !got.EventTime.Time.Equal(server.start) {
			t.Errorf("its time is %s, want %s", got.EventTime, server.start)
		}
		got.Name, got.EventTime = "", metav1.MicroTime{}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		want := &eventsv1.Event{
			TypeMeta:            metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
			ObjectMeta:          metav1.ObjectMeta{Namespace: "shop"},
			ReportingController: "shop.example.com/operator",
			ReportingInstance:   host,
			Regarding:           pod("web"),
			Type:                "Warning", Reason: "Stalled", Action: "Retry", Note: "the database is away",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the Event (-want +got):\n%s", diff)
		}
	})
}

func TestInvalidValuesAreSanitized(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1000)
	type fields struct{ Type, Reason, Action, Note string }
	for name, test := range map[string]struct{ in, want fields }{
		"empty":          {fields{}, fields{"Normal", "Unknown", "Unknown", ""}},
		"no action":      {fields{"Normal", "Done", "", "x"}, fields{"Normal", "Done", "Done", "x"}},
		"no reason":      {fields{"Normal", "", "Scale", "x"}, fields{"Normal", "Scale", "Scale", "x"}},
		"unknown type":   {fields{"Fatal", "A", "B", ""}, fields{"Warning", "A", "B", ""}},
		"too long":       {fields{"Normal", long, long, long}, fields{"Normal", long[:124] + "...", long[:124] + "...", long[:1020] + "..."}},
		"maximum length": {fields{"Normal", long[:128], "B", long[:1024]}, fields{"Normal", long[:128], "B", long[:1024]}},
		"invalid UTF-8":  {fields{"Normal", "A", "B", strings.Repeat("a\xff", 600)}, fields{"Normal", "A", "B", strings.Repeat("a\uFFFD", 255) + "a..."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, recorder, logged := newRunning(t, event.Config{})
				recorder.Event(pod("web"), test.in.Type, test.in.Reason, test.in.Action, test.in.Note)
				synctest.Wait()
				if n := logged.with(""); n > 0 {
					t.Fatal(logged.text)
				}
				e := server.one(t)
				if diff := cmp.Diff(test.want, fields{e.Type, e.Reason, e.Action, e.Note}); diff != "" {
					t.Errorf("the Event (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestEventNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 235)
	for name, test := range map[string]struct {
		regarding corev1.ObjectReference
		want      string // without the time
	}{
		"valid name":         {pod("web"), "shop/web"},
		"no namespace":       {corev1.ObjectReference{Kind: "Node", Name: "n1"}, "default/n1"},
		"invalid characters": {corev1.ObjectReference{Kind: "ClusterRole", Name: "system:controller:X-"}, "default/system-controller-x"},
		"no valid character": {corev1.ObjectReference{Kind: "User", Name: ":::"}, "default/object"},
		"long name":          {pod(long + "." + strings.Repeat("y", 17)), "shop/" + long},
		"invalid subdomain":  {pod("a..b"), "shop/object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, recorder, _ := newRunning(t, event.Config{})
				recorder.Event(test.regarding, "Normal", "A", "B", "")
				synctest.Wait()
				e := server.one(t)
				if got := e.Namespace + "/" + e.Name[:strings.LastIndex(e.Name, ".")]; got != test.want {
					t.Errorf("it is %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestContract18_RepeatsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		regarding := pod("web")
		for i := range 10 { // at 0s, 1m, ... 9m
			regarding.ResourceVersion = fmt.Sprint(i) // the object changes
			recorder.Event(regarding, "Warning", "Stalled", "Retry", "again")
			time.Sleep(time.Minute)
		}
		// Repeats from 1m to 5m are sent at 5m, later ones at 10m.
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]string{"0s POST", "5m0s PATCH", "10m0s PATCH"}, server.log()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		series := server.one(t).Series
		if want := server.start.Add(9 * time.Minute); series.Count != 10 || !series.LastObservedTime.Time.Equal(want) {
			t.Errorf("the series has count %d, last %s, want 10 and %s", series.Count, series.LastObservedTime, want)
		}
		// An hour later the same event becomes a new Event.
		recorder.Event(regarding, "Warning", "Stalled", "Retry", "again")
		synctest.Wait()
		if got := server.list(); len(got) != 2 {
			t.Errorf("the server contains %q, want a second Event", got)
		}
		expectStats(t, recorder, event.Stats{Sent: 4})
	})
}

func TestSeriesContinuesWhileRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{RepeatInterval: time.Minute})
		for range 100 {
			recorder.Event(pod("web"), "Normal", "A", "B", "")
			time.Sleep(119 * time.Second)
		}
		if got := server.one(t).Series.Count; got != 100 {
			t.Errorf("the count is %d, want 100", got)
		}
	})
}

func TestDifferentEventsAreNotRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		other := pod("web")
		other.UID = "u2"
		recorder.Event(pod("web"), "Normal", "A", "B", "c")
		recorder.Event(pod("web"), "Warning", "A", "B", "c")
		recorder.Event(pod("web"), "Normal", "x", "B", "c")
		recorder.Event(pod("web"), "Normal", "A", "x", "c")
		recorder.Event(pod("web"), "Normal", "A", "B", "x")
		recorder.Event(other, "Normal", "A", "B", "c")
		synctest.Wait()
		if got := server.list(); len(got) != 6 {
			t.Errorf("the server contains %q, want 6 Events", got)
		}
	})
}

func TestExpiredEventIsCreatedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Minute)
		server.expire()
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		recorder.Event(pod("web"), "Normal", "A", "B", "")
		time.Sleep(time.Hour)
		got := server.one(t)
		if !got.EventTime.Time.Equal(server.start) || got.Series == nil || got.Series.Count != 3 {
			t.Errorf("the Event is of %s with series %v, want %s and 3 times", got.EventTime, got.Series, server.start)
		}
		expectStats(t, recorder, event.Stats{Sent: 2})
	})
}

func TestContract18_EventsOfObjectAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, logged := newRunning(t, event.Config{ObjectBurst: 3})
		say := func(name string, n int) {
			for range n {
				recorder.Event(pod(name), "Normal", "A", "B", fmt.Sprint("it is now ", time.Now().UnixNano(), " ", len(server.log())))
				synctest.Wait()
			}
		}
		const burst = 3
		for _, step := range []struct {
			after   time.Duration
			object  string
			calls   int
			created int
		}{
			{0, "busy", 10, burst},
			{0, "quiet", 2, 2}, // has its own budget
			{5*time.Minute - time.Second, "busy", 10, 0},
			{time.Second, "busy", 10, 1},
			{15 * time.Minute / 2, "busy", 10, 1},
			{150 * time.Second, "busy", 10, 1}, // half a token was left
			{24 * time.Hour, "busy", 10, burst},
		} {
			time.Sleep(step.after)
			before := len(server.log())
			say(step.object, step.calls)
			if got := len(server.log()) - before; got != step.created {
				t.Errorf("%d events about %s after %s: %d were sent, want %d", step.calls, step.object, step.after, got, step.created)
			}
		}
		if got := recorder.Stats().Dropped; got != 51 {
			t.Errorf("%d were dropped, want 51", got)
		}
		if got := logged.with("events dropped"); got < 1 || got > 6 {
			t.Errorf("drops logged %d times, want once a minute at most", got)
		}
	})
}

func TestFullQueueDropsNewEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		open := make(chan struct{})
		server.answer = func(*http.Request) (*http.Response, error) { <-open; return nil, nil } //nolint:nilnil // the fake server answers
		recorder, _ := server.running(t, event.Config{QueueSize: 2})
		began := time.Now()
		for i := range 5 {
			recorder.Event(pod(fmt.Sprint("web", i)), "Normal", "A", "B", "")
			synctest.Wait() // the first is being sent
		}
		recorder.Event(pod("web0"), "Normal", "A", "B", "") // repeats do not use the queue
		recorder.Event(pod("web1"), "Normal", "A", "B", "")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("Event blocked for %s", waited)
		}
		close(open)
		time.Sleep(time.Hour)
		got := server.list()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"web0 A x2", "web1 A x2", "web2 A x1"}, got); diff != "" {
			t.Errorf("Events in the server (-want +got):\n%s", diff)
		}
		expectStats(t, recorder, event.Stats{Sent: 4, Dropped: 2})
	})
}

func TestLeastRecentObjectIsEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		recorder.KeepObjects(2)
		for _, name := range []string{"a", "b", "b", "a", "c" /* forgets b and its repeat */, "a", "b"} {
			recorder.Event(pod(name), "Normal", "A", "B", "")
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		got := server.list()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a A x3", "b A x1", "b A x1", "c A x1"}, got); diff != "" {
			t.Errorf("Events in the server (-want +got):\n%s", diff)
		}
		if got := recorder.Stats().Dropped; got != 1 {
			t.Errorf("%d were dropped, want the repeat about b", got)
		}
	})
}

func TestEventWithoutObjectIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		recorder.Event(corev1.ObjectReference{Kind: "Pod"}, "Normal", "A", "B", "")
		expectStats(t, recorder, event.Stats{Dropped: 1})
	})
}

func TestSimultaneousEventsHaveDifferentNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, recorder, _ := newRunning(t, event.Config{})
		for i := range 20 { // virtual time does not advance
			recorder.Event(pod("web"), "Normal", "A", "B", fmt.Sprint(i))
		}
		synctest.Wait()
		if got := server.list(); len(got) != 20 {
			t.Errorf("the server has %d Events, want 20", len(got))
		}
	})
}

func TestEventNamesOfTwoRecordersDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		for range 3 {
			recorder, _ := server.running(t, event.Config{})
			recorder.Event(pod("web"), "Normal", "A", "B", "")
			recorder.Event(pod("web"), "Normal", "A", "B", "")
		}
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]string{"web A x2", "web A x2", "web A x2"}, server.list()); diff != "" {
			t.Errorf("Events in the server (-want +got):\n%s", diff)
		}
	})
}

func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		for i := range 1000 + 10 {
			recorder.Event(pod(fmt.Sprint("queued", i)), "Normal", "A", "B", "")
		}
		if got := recorder.Stats().Dropped; got != 10 {
			t.Errorf("%d events queued, %d dropped, want 10", 1000+10, got)
		}
		testrun.Start(t, recorder.Run)
		synctest.Wait()
		sent := recorder.Stats().Sent
		say := func(n int, want uint64) {
			t.Helper()
			for i := range n {
				recorder.Event(pod("web"), "Normal", "A", "B", fmt.Sprint(time.Now(), i))
			}
			synctest.Wait()
			if got := recorder.Stats().Sent - sent; got != want {
				t.Errorf("%d different events about one object: %d were sent, want %d", n, got, want)
			}
			sent = recorder.Stats().Sent
		}
		say(30, 25)
		time.Sleep(5*time.Minute - 1)
		say(30, 0)
		time.Sleep(time.Nanosecond)
		say(30, 1)
		for i := range 1000 { // evict web
			recorder.Event(pod(fmt.Sprint("other", i)), "Normal", "A", "B", "")
		}
		synctest.Wait()
		sent = recorder.Stats().Sent
		say(30, 25)
	})
}

func BenchmarkEvent(b *testing.B) {
	server := newAPIServer()
	config := event.Config{Cluster: server.cluster(b), Controller: "bench"}
	recorder, err := event.New(config)
	if err != nil {
		b.Fatal(err)
	}
	regarding := pod("web")
	b.Run("repeat", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			recorder.Event(regarding, "Warning", "Stalled", "Retry", "the database is away")
		}
	})
	b.Run("dropped", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			recorder.Event(regarding, "Warning", "Stalled", "Retry", strconv.Itoa(i))
		}
	})
}
