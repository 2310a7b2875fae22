package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// TestContract19_HotLoopIsReportedAndSlowed checks a hot loop of two clients that write the same field.
func TestContract19_HotLoopIsReportedAndSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told events
		var logs journal
		var runs atomic.Int64
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs.Add(1)
			return w.patch(ctx, "widgets", "a", `{"spec":{"replicas":3}}`)
		})
		c.Logger = logs.logger(slog.LevelWarn)
		w.put("widgets", "a", 1)
		ctrl, err := controller.New(c)
		if err != nil {
			t.Fatal(err)
		}
		start(t, ctrl)
		apiobject.ObserversOf(w.cluster).SetEvents(&told) // a program may create its recorder while the controller runs
		time.Sleep(time.Second)                           // managedFields have times in seconds: the creator is no longer one of the last writers
		fight := func(rounds int) {
			for range rounds {
				time.Sleep(100 * time.Millisecond)
				w.Edit("widgets", key("a"), "autoscaler", func(obj map[string]any) bool {
					obj["spec"].(map[string]any)["replicas"] = int64(5)
					return true
				})
			}
		}
		fight(300)
		problems := ctrl.Problems()
		if len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop || problems[0].Key != key("a") {
			t.Fatalf("problems %+v", problems)
		}
		text := fmt.Sprint(problems[0])
		for _, want := range []string{"spec.replicas", "autoscaler", "operator", "3", "5", "Widget ns/a"} {
			if !strings.Contains(text, want) {
				t.Errorf("the problem does not name %q: %s", want, text)
			}
		}
		if got := told.take(); len(got) != 1 || !strings.Contains(got[0], "HotLoop") {
			t.Errorf("Events %q, want one", got)
		}
		if got := logs.take(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
		before := runs.Load()
		fight(600) // a minute
		if more := runs.Load() - before; more > 10 {
			t.Errorf("%d runs in a minute of the episode: it is not slowed", more)
		}
		time.Sleep(time.Hour)
		expectNoProblems(t, "an hour after the last of it", ctrl)
	})
}

// TestHotLoopWithinOneSecond checks that the other client is named if all writes are within one second, the unit of the times
// in managedFields.
func TestHotLoopWithinOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			return w.patch(ctx, "widgets", "a", `{"metadata":{"labels":{"by":"operator"}},"spec":{"replicas":3}}`)
		})
		w.put("widgets", "a", 1)
		time.Sleep(time.Second) // the creator is no longer one of the last writers
		ctrl := w.run(c)
		synctest.Wait()
		for range 20 {
			w.Edit("widgets", key("a"), "autoscaler", func(obj map[string]any) bool {
				obj["spec"].(map[string]any)["replicas"] = int64(5)
				return true
			})
			time.Sleep(20 * time.Millisecond)
		}
		problems := ctrl.Problems()
		if len(problems) != 1 {
			t.Fatalf("problems %+v", problems)
		}
		if text := fmt.Sprint(problems[0]); !strings.Contains(text, "each time autoscaler had changed it") {
			t.Errorf("the problem does not name the autoscaler: %s", text)
		}
	})
}

// TestContract19_HotLoopOfTypedKind checks hot loops of a built-in kind: the informer gets it as protobuf, and package
// client gets JSON.
func TestContract19_HotLoopOfTypedKind(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context, c *client.Client, m, after *corev1.ConfigMap) error{
		"update": func(ctx context.Context, c *client.Client, _, after *corev1.ConfigMap) error {
			_, err := client.Update(ctx, c, after)
			return err
		},
		"merge patch": func(ctx context.Context, c *client.Client, m, after *corev1.ConfigMap) error {
			_, err := client.Patch(ctx, c, m, client.MergeFrom(m, after))
			return err
		},
		"apply": func(ctx context.Context, c *client.Client, m, after *corev1.ConfigMap) error {
			_, err := client.Apply(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}, Data: after.Data}, client.Force())
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := apitest.New(apiserver.ConfigMaps())
			connect := func(user string) (*kube.Cluster, *client.Client) {
				cluster, err := kube.Connect(server.Config(user))
				if err != nil {
					t.Fatal(err)
				}
				c, err := client.New(client.Config{Cluster: cluster, FieldOwner: user})
				if err != nil {
					t.Fatal(err)
				}
				return cluster, c
			}
			cluster, own := connect("operator")
			_, other := connect("other")
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Data: map[string]string{"mode": "fast"}}
			if _, err := client.Create(t.Context(), other, m); err != nil {
				t.Fatal(err)
			}
			ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
				Name: "maps", Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), ResyncInterval: -1, Logger: slog.New(slog.DiscardHandler),
				Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
					if m.Data["mode"] == "safe" {
						return nil
					}
					after := m.DeepCopy()
					after.Data["mode"] = "safe"
					return write(ctx, own, m, after)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			start(t, ctrl)
			for range 30 {
				time.Sleep(3 * time.Second)
				patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"mode":"fast"}}`))
				if _, err := client.Patch(t.Context(), other, m.DeepCopy(), patch); err != nil {
					t.Fatal(err)
				}
			}
			text := fmt.Sprint(ctrl.Problems())
			for _, want := range []string{"data.mode", "operator", "other", "ConfigMap ns/a"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the problems do not name %q: %s", name, want, text)
				}
			}
		})
	}
}

// TestContract20_StuckHandlerIsReportedAndReplaced checks that the stack is logged once, that readiness reports the
// stuck handler if it is configured to, and that another worker takes over.
func TestContract20_StuckHandlerIsReportedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs, handled journal
		release := make(chan struct{})
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			if widget.GetName() == "stuck" {
				waitForALongTime(release)
			}
			handled.add("%s", widget.GetName())
			return nil
		})
		c.Workers, c.Runs.StuckAfter, c.Runs.UnreadyWhenStuck = 1, time.Minute, true
		c.Logger = logs.logger(slog.LevelWarn)
		w.put("widgets", "stuck", 1)
		ctrl := w.run(c)
		synctest.Wait()
		w.put("widgets", "b", 1)
		time.Sleep(50 * time.Second)
		if got := handled.take(); len(got) != 0 || ctrl.Ready() != nil {
			t.Errorf("before the minute is over, handled %q, ready: %v", got, ctrl.Ready())
		}
		time.Sleep(30 * time.Second)
		if got := handled.take(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("beside a stuck handler, handled %q", got)
		}
		time.Sleep(10 * time.Minute)
		lines := logs.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "waitForALongTime") || !strings.Contains(lines[0], "ns/stuck") {
			t.Errorf("logged %q, want one line with the stack", lines)
		}
		if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), "ns/stuck") {
			t.Errorf("Ready: %v, want the stuck key", err)
		}
		if s := ctrl.Stats(); s.Problems[controller.ProblemStuck] != 1 || s.Processing != 1 {
			t.Errorf("Stats %+v", s)
		}
		close(release)
		synctest.Wait()
		if err := ctrl.Ready(); err != nil || len(ctrl.Problems()) != 0 {
			t.Errorf("when it has returned: %v, problems %+v", err, ctrl.Problems())
		}
		// The number of workers is one again.
		w.put("widgets", "stuck", 2)
		w.put("widgets", "b", 2)
		synctest.Wait()
		if got := handled.take(); len(got) != 3 {
			t.Errorf("handled %q", got)
		}
	})
}

// TestShortLimitReportsStuckHandlerEarly checks that a short Config.Runs.StuckAfter is not rounded up to the usual
// interval of the checks.
func TestShortLimitReportsStuckHandlerEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		c := w.config(func(context.Context, unstructuredObject) error {
			waitForALongTime(release)
			return nil
		})
		c.Runs.StuckAfter = 2 * time.Second
		w.put("widgets", "stuck", 1)
		ctrl := w.run(c)
		time.Sleep(3 * time.Second)
		if n := ctrl.Stats().Problems[controller.ProblemStuck]; n != 1 {
			t.Errorf("%d stuck handlers after three seconds, want one: the limit is two", n)
		}
		close(release)
		synctest.Wait()
	})
}

// TestContract20_StuckHandlerIsReplacedWhenOneReturns checks that a stuck handler is replaced later if there were
// too many stuck handlers for another worker when it was detected.
func TestContract20_StuckHandlerIsReplacedWhenOneReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var handled journal
		var release [4]chan struct{}
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			var n int
			if _, err := fmt.Sscanf(widget.GetName(), "stuck%d", &n); err == nil {
				waitForALongTime(release[n])
			}
			handled.add("%s", widget.GetName())
			return nil
		})
		c.Workers, c.Runs.StuckAfter = 1, time.Minute
		for n := range release {
			release[n] = make(chan struct{})
			w.put("widgets", fmt.Sprint("stuck", n), 1)
		}
		ctrl := w.run(c)
		time.Sleep(10 * time.Minute)
		w.put("widgets", "b", 1)
		time.Sleep(10 * time.Minute)
		if got := handled.take(); len(got) != 0 {
			t.Errorf("beside as many stuck handlers as there may be workers, handled %q", got)
		}
		close(release[0])
		time.Sleep(2 * time.Minute)
		if got := handled.take(); !slices.Equal(got, []string{"stuck0", "b"}) {
			t.Errorf("when one of them has returned, handled %q", got)
		}
		for _, problem := range ctrl.Problems() {
			if !strings.Contains(problem.Message, "another worker takes its place") {
				t.Errorf("problem %s", problem)
			}
		}
		for _, released := range release[1:] {
			close(released)
		}
		synctest.Wait()
		if len(ctrl.Problems()) != 0 {
			t.Errorf("when all have returned, problems %v", ctrl.Problems())
		}
	})
}

func waitForALongTime(release chan struct{}) { <-release }

// TestContract21_GrowingQueueIsReported checks that a growing queue is reported once per episode.
func TestContract21_GrowingQueueIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		var fast atomic.Bool
		c := w.config(func(context.Context, unstructuredObject) error {
			if !fast.Load() {
				time.Sleep(time.Second)
			}
			return nil
		})
		c.Workers, c.Logger = 1, logs.logger(slog.LevelWarn)
		ctrl := w.run(c)
		for i := range 180 * 5 {
			w.put("widgets", fmt.Sprint("w", i), 1)
			time.Sleep(200 * time.Millisecond)
		}
		if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemQueueGrowing {
			t.Errorf("problems %+v", problems)
		}
		if s := ctrl.Stats(); s.OldestWait < time.Minute {
			t.Errorf("Stats %+v", s)
		}
		if got := logs.take(); len(got) != 1 || !strings.Contains(got[0], "queue-growing") {
			t.Errorf("logged %q", got)
		}
		fast.Store(true)
		time.Sleep(time.Hour)
		expectNoProblems(t, "when the queue is empty", ctrl)
	})
}

// TestContract23_TimersEndWithTheirObjects checks that timers end with their objects, and outlive other runs.
func TestContract23_TimersEndWithTheirObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var runs journal
		var set sync.Map // UIDs of objects whose timers were set; workers run concurrently
		c := w.config(func(ctx context.Context, widget unstructuredObject) error {
			runs.add("%s: %s", widget.GetName(), causesOf(ctx))
			if _, found := set.LoadOrStore(widget.GetUID(), true); found {
				return nil
			}
			return errors.Join(
				controller.SetTimer(ctx, "certificate", time.Hour),
				controller.SetTimer(ctx, "never", 2*time.Hour),
				func() error { controller.StopTimer(ctx, "never"); return nil }())
		})
		for _, name := range []string{"stays", "goes", "returns"} {
			w.put("widgets", name, 1)
		}
		w.run(c)
		time.Sleep(30 * time.Minute)
		runs.take()
		w.put("widgets", "stays", 2) // other runs do not stop a timer
		w.remove("widgets", "goes")
		w.remove("widgets", "returns")
		synctest.Wait()
		w.put("widgets", "returns", 1) // the new object gets a separate timer
		time.Sleep(35 * time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"stays: updated (spec) by somebody", "returns: added by somebody", "stays: timer (certificate)"}) {
			t.Errorf("handled %q", got)
		}
		time.Sleep(time.Hour)
		if got := runs.take(); !slices.Equal(got, []string{"returns: timer (certificate)"}) {
			t.Errorf("an hour later, handled %q", got)
		}
	})
	if err := controller.SetTimer(t.Context(), "x", time.Second); err == nil {
		t.Error("SetTimer outside a handler returns no error")
	}
}

// TestContract25_DeletedReceivesLastState checks that Deleted gets the last state, and an argument that reports whether
// the state may be stale.
func TestContract25_DeletedReceivesLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var calls journal
		fails := true
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			calls.add("handle %s %v", widget.GetName(), widget.Object["spec"])
			return nil
		})
		c.Deleted = func(_ context.Context, last unstructuredObject, stale bool) error {
			calls.add("deleted %s %v stale=%v", last.GetName(), last.Object["spec"], stale)
			if last.GetName() == "fails" && fails {
				fails = false
				return errors.New("no luck")
			}
			return nil
		}
		for _, name := range []string{"watched", "fails", "listed", "replaced"} {
			w.put("widgets", name, 1)
		}
		w.run(c)
		synctest.Wait()
		expect := func(what string, want ...string) {
			t.Helper()
			if got := calls.take(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		calls.take()
		w.remove("widgets", "watched")
		synctest.Wait()
		expect("by a watch", "deleted watched map[value:1] stale=false")
		w.remove("widgets", "fails")
		time.Sleep(time.Second)
		expect("when it fails, it is tried again", "deleted fails map[value:1] stale=false", "deleted fails map[value:1] stale=false")
		w.HoldWatches("widgets")
		w.put("widgets", "listed", 2)
		w.remove("widgets", "listed")
		w.Break("widgets", true)
		time.Sleep(time.Minute)
		expect("by a list", "deleted listed map[value:1] stale=true")
		w.HoldWatches("widgets")
		w.remove("widgets", "replaced")
		w.put("widgets", "replaced", 2)
		w.Break("widgets", true)
		time.Sleep(time.Minute)
		expect("another in its place", "deleted replaced map[value:1] stale=true", "handle replaced map[value:2]")
	})
}

// TestContract26_LogLines checks that each run is logged at debug level, that each change of the outcome is logged at
// info level or above, and that the same error of a key is logged at most once a second.
func TestContract26_LogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		fails := true
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			controller.LoggerFrom(ctx).Info("the handler speaks")
			if fails {
				return errors.New("no luck")
			}
			return nil
		})
		c.Logger = logs.logger(slog.LevelDebug)
		w.put("widgets", "a", 1)
		w.run(c)
		time.Sleep(10 * time.Second)
		count := func(lines []string, texts ...string) (n int) {
			for _, line := range lines {
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
					n++
				}
			}
			return n
		}
		lines := logs.take()
		handled, spoken := count(lines, "level=DEBUG", "msg=handled"), count(lines, "the handler speaks", "controller=widgets", "run.key=ns/a", "run.id=")
		if handled < 10 || handled != spoken {
			t.Errorf("%d lines of runs, %d of handlers", handled, spoken)
		}
		if n := count(lines, "level=WARN", "will try again"); n < 3 || n > 6 {
			t.Errorf("the same error is logged %d times in 10 s in which %d runs failed", n, handled)
		}
		fails = false
		w.put("widgets", "a", 2)
		synctest.Wait()
		w.put("widgets", "a", 3)
		synctest.Wait()
		lines = logs.take()
		if n := count(lines, "level=INFO", "handler recovered"); n != 1 {
			t.Errorf("that the handler recovered is logged %d times: %q", n, lines)
		}
	})
}

// TestContract15_InformerReportsStaleness checks that an informer reports the maximum age of the objects that it
// returns.
func TestContract15_InformerReportsStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(context.Context, unstructuredObject) error { return nil })
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		synctest.Wait()
		w.HoldWatches("widgets")
		time.Sleep(45 * time.Second)
		if s := ctrl.Informer().Health().Staleness; s.Round(time.Second) != 45*time.Second {
			t.Errorf("after 45 s without a word from the API server: stale by %s", s)
		}
		w.ReleaseWatches("widgets")
		time.Sleep(10 * time.Minute)
		// The last bookmark of a watch is sent 2 s before its end. The next watch begins at once, and its first bookmark is
		// sent after a minute.
		if s := ctrl.Informer().Health().Staleness; s > time.Minute+2*time.Second {
			t.Errorf("with a bookmark every minute: stale by %s", s)
		}
	})
}

// TestChangeFunctionThatDoesNotReturnIsReported checks that a predicate or a mapping function of a source that does
// not return is reported. Readiness, Problems and the log name the informer, which is blocked until then.
func TestChangeFunctionThatDoesNotReturnIsReported(t *testing.T) {
	for _, what := range []string{"predicate", "mapper"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var logs journal
				block := make(chan struct{})
				waits := func(name string) {
					if name == "bad" {
						<-block
					}
				}
				parts, err := informer.New(informer.Config[unstructuredObject]{
					Name: "parts", Retriever: informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Part")}),
					Logger: logs.logger(slog.LevelWarn),
				})
				if err != nil {
					t.Fatal(err)
				}
				c := w.config(func(context.Context, unstructuredObject) error { return nil })
				c.Logger = logs.logger(slog.LevelWarn)
				resource, name := "widgets", "widgets"
				if what == "predicate" {
					c.Predicate = func(change informer.Change) bool {
						waits(change.Key.Name)
						return true
					}
				} else {
					resource, name = "parts", "parts"
					c.Sources = []controller.Source{source.Mapped(parts, func(part unstructuredObject) []kube.Key {
						waits(part.GetName())
						return nil
					})}
				}
				ctrl := w.run(c)
				time.Sleep(time.Second)
				w.put(resource, "bad", 1)
				time.Sleep(50 * time.Second)
				if err := ctrl.Ready(); err != nil {
					t.Errorf("after 50 s: %v", err)
				}
				time.Sleep(30 * time.Minute)
				if err := ctrl.Ready(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "has not returned for 30m50s") {
					t.Errorf("Ready: %v", err)
				}
				if all := ctrl.Problems(); len(all) != 1 || all[0].Type != controller.ProblemInformer {
					t.Errorf("problems %v", all)
				}
				if lines := logs.take(); len(lines) != 1 || !strings.Contains(lines[0], "has not returned") {
					t.Errorf("logged %q", lines)
				}
				close(block)
				time.Sleep(time.Second)
				if err := ctrl.Ready(); err != nil {
					t.Errorf("when it has returned: %v", err)
				}
			})
		})
	}
}

// Other packages implement the contracts of this file, and their tests cover the details. These tests check that the
// user of a controller gets them.

// TestContract18_ProblemIsRecordedAsOneEvent checks that an Event is about the key's own object, and is recorded
// once an episode. A success of the key ends the episode.
func TestContract18_ProblemIsRecordedAsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told events
		var works atomic.Bool
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			if works.Load() {
				return nil
			}
			// The informer never shows this write, so each run starts before its informers show the writes of the run
			// before.
			return errors.Join(w.patch(ctx, "parts", "p", fmt.Sprintf(`{"spec":{"at":%d}}`, time.Now().Unix())), errors.New("no luck"))
		})
		c.Events, c.Reads = &told, []informer.Any{w.parts(kube.Selection{})}
		c.Retry.Every.Max = time.Second
		w.put("widgets", "a", 1)
		w.put("parts", "p", 1)
		w.HoldWatches("parts")
		ctrl := w.run(c)
		expect := func(what string) {
			t.Helper()
			if got := told.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Widget/a ("+string(w.uid("widgets", "a"))+") UnseenWrite: ") {
				t.Errorf("%s made the Events %q, want one about the object", what, got)
			}
		}
		time.Sleep(5 * time.Minute)
		if runs := ctrl.RecentRuns(); len(runs) < 10 {
			t.Fatalf("%d runs, each of which was too early", len(runs))
		}
		expect("one episode")
		works.Store(true)
		time.Sleep(time.Minute)
		works.Store(false)
		w.put("widgets", "a", 2)
		time.Sleep(5 * time.Minute)
		expect("the next one")
	})
}

// A handler that requests another run at once for ever, and one that has written something, or has much to do.
func TestContract19_RequeueLoopIsReportedAndSlowed(t *testing.T) {
	for name, test := range map[string]struct {
		writes   bool          // each run changes an object
		takes    time.Duration // the time of each run
		delay    time.Duration
		maxPause time.Duration
		isLoop   bool
		runs     int // in the 30 s after the first 100 runs; 0: all
	}{
		"at once":             {isLoop: true, runs: 30},
		"after a millisecond": {delay: time.Millisecond, isLoop: true, runs: 30},
		"not slowed":          {maxPause: -1, isLoop: true},
		"slowed less":         {maxPause: 100 * time.Millisecond, isLoop: true, runs: 300},
		"after a second":      {delay: time.Second},
		"with writes":         {writes: true},
		"with work":           {takes: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs atomic.Int64
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					run := runs.Add(1)
					time.Sleep(test.takes)
					if test.writes {
						if err := w.patch(ctx, "parts", "p", fmt.Sprintf(`{"spec":{"value":%d}}`, run)); err != nil {
							return err
						}
					}
					if run == 1000 {
						return nil
					}
					return controller.RequeueAfter(test.delay)
				})
				c.Runs.MaxPause = test.maxPause
				w.put("widgets", "a", 1)
				w.put("parts", "p", 0)
				ctrl := w.run(c)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				isLoop := len(ctrl.Problems()) == 1 && ctrl.Problems()[0].Type == controller.ProblemHotLoop
				if n := int(runs.Load()); test.runs > 0 && (n < 100+test.runs-5 || n > 100+test.runs+5 || !isLoop) {
					t.Errorf("%d runs, problems %v, want %d", n, ctrl.Problems(), 100+test.runs)
				}
				if time.Sleep(time.Hour); runs.Load() != 1000 || len(ctrl.Problems()) > 0 {
					t.Errorf("in the end: %d runs, problems %v", runs.Load(), ctrl.Problems())
				}
				if detected := ctrl.Stats(); !test.isLoop && detected.Held > 0 {
					t.Errorf("stats %+v", detected)
				}
			})
		})
	}
}

// A handler may leave a request behind that ends after its run. The race detector checks this test.
func TestRequeueLoopWithWritesAfterRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var left sync.WaitGroup
		runs := 0
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			runs++
			n := runs
			left.Go(func() { // waited for below
				_ = w.patch(ctx, "parts", "p", fmt.Sprintf(`{"spec":{"value":%d}}`, n)) // cancelled or not
			})
			if runs == 50 {
				return nil
			}
			return controller.RequeueAfter(time.Millisecond)
		})
		w.put("widgets", "a", 1)
		w.put("parts", "p", 0)
		w.run(c)
		time.Sleep(time.Minute)
		left.Wait()
	})
}

// The end of a loop of requeues must not end the problem of a loop of writes, which lasts.
func TestEndOfRequeueLoopKeepsWriteLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fights, runs := 20, 0
		c := w.config(func(ctx context.Context, _ unstructuredObject) error {
			switch runs++; {
			case runs <= fights:
				return w.patch(ctx, "widgets", "a", `{"spec":{"replicas":3}}`)
			case runs <= fights+150:
				return controller.RequeueAfter(0)
			}
			return nil
		})
		c.Runs.MaxPause = -1
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Second)
		for range fights + 1 {
			w.Edit("widgets", key("a"), "autoscaler", func(obj map[string]any) bool {
				obj["spec"].(map[string]any)["replicas"] = int64(5)
				return true
			})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if problems := ctrl.Problems(); runs != fights+151 || len(problems) != 1 || !strings.Contains(problems[0].Message, "autoscaler") {
			t.Errorf("%d runs, problems %v", runs, problems)
		}
	})
}

// A loop of writes that another client undoes is held back for MaxPause at most, or not at all. It is reported anyway.
func TestMaxPauseLimitsPausesOfWriteLoop(t *testing.T) {
	const edits = 150 // in 15 seconds
	for name, test := range map[string]struct {
		maxPause time.Duration
		least    int64 // runs
		most     int64
	}{
		"default":    {0, 6, 12},
		"smaller":    {time.Second, 15, 25},
		"not slowed": {-1, edits, edits + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs atomic.Int64
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs.Add(1)
					return w.patch(ctx, "widgets", "a", `{"spec":{"replicas":3}}`)
				})
				c.Runs.MaxPause = test.maxPause
				w.put("widgets", "a", 1)
				ctrl := w.run(c)
				time.Sleep(time.Second)
				for range edits {
					time.Sleep(100 * time.Millisecond)
					w.Edit("widgets", key("a"), "autoscaler", func(obj map[string]any) bool {
						obj["spec"].(map[string]any)["replicas"] = int64(5)
						return true
					})
				}
				synctest.Wait()
				if n := runs.Load(); n < test.least || n > test.most {
					t.Errorf("%d runs after %d edits, want %d to %d", n, edits, test.least, test.most)
				}
				problems := ctrl.Problems()
				if len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop || !strings.Contains(problems[0].Message, "autoscaler") {
					t.Errorf("problems %v, want one hot loop with the autoscaler", problems)
				}
			})
		})
	}
}

// TestContract19_RatesThatNoWorkExplainsAreReported checks loops of any content: times, values in turn, deletion and
// creation in turn, and random content that each resync replaces.
func TestContract19_RatesThatNoWorkExplainsAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		step   time.Duration
		rounds int
		other  bool // another program answers each write with a time
		handle func(ctx context.Context, w *world, run int) error
		field  string
	}{
		"times in annotations": {100 * time.Millisecond, 900, true, func(ctx context.Context, w *world, _ int) error {
			return w.patch(ctx, "widgets", "a", fmt.Sprintf(`{"metadata":{"annotations":{"seen":%q}}}`, time.Now().Format(time.RFC3339Nano)))
		}, "metadata.annotations.seen"},
		"times in the spec": {100 * time.Millisecond, 900, true, func(ctx context.Context, w *world, _ int) error {
			return w.patch(ctx, "widgets", "a", fmt.Sprintf(`{"spec":{"seen":%q}}`, time.Now().Format(time.RFC3339Nano)))
		}, "spec.seen"},
		"two values in turn": {100 * time.Millisecond, 900, true, func(ctx context.Context, w *world, run int) error {
			return w.patch(ctx, "widgets", "a", fmt.Sprintf(`{"spec":{"value":%d}}`, run%2))
		}, "spec.value"},
		"delete and create in turn": {100 * time.Millisecond, 100, true, func(ctx context.Context, w *world, _ int) error {
			return errors.Join(w.objects("parts").Delete(ctx, "p", metav1.DeleteOptions{}), w.create(ctx, "parts", "Part", "p"))
		}, "created"},
		"random content": {time.Minute, 120, false, func(ctx context.Context, w *world, run int) error {
			return w.patch(ctx, "parts", "p", fmt.Sprintf(`{"spec":{"password":"x%dy"}}`, run*run))
		}, "spec.password"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				runs := 0
				c := w.config(func(ctx context.Context, _ unstructuredObject) error {
					runs++
					return test.handle(ctx, w, runs)
				})
				c.ResyncInterval, c.Reads = 0, []informer.Any{w.parts(kube.Selection{})}
				w.put("widgets", "a", 1)
				w.put("parts", "p", 0)
				ctrl := w.run(c)
				time.Sleep(time.Second)
				for range test.rounds {
					time.Sleep(test.step)
					if !test.other {
						continue
					}
					w.Edit("widgets", key("a"), "other", func(obj map[string]any) bool {
						obj["spec"].(map[string]any)["other"] = time.Now().Format(time.RFC3339Nano)
						return true
					})
				}
				problems := ctrl.Problems()
				if len(problems) != 1 || problems[0].Type != controller.ProblemHotLoop || !strings.Contains(fmt.Sprint(problems), test.field) {
					t.Fatalf("after %d runs, problems %v, want a hot loop of %s", runs, problems, test.field)
				}
			})
		})
	}
}

// A handler that does not return is logged long before it is reported as stuck.
func TestContract20_LongRunIsLoggedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var logs journal
		release := make(chan struct{})
		c := w.config(func(context.Context, unstructuredObject) error {
			waitForALongTime(release)
			return nil
		})
		c.Logger = logs.logger(slog.LevelInfo)
		w.put("widgets", "slow", 1)
		ctrl := w.run(c)
		time.Sleep(25 * time.Second)
		logs.take()
		time.Sleep(4 * time.Minute)
		if lines := logs.take(); len(lines) != 1 || !strings.Contains(lines[0], "handler is still running") || !strings.Contains(lines[0], "ns/slow") ||
			len(ctrl.Problems()) > 0 {
			t.Errorf("logged %q, problems %v, want one line", lines, ctrl.Problems())
		}
		close(release)
		synctest.Wait()
	})
}

// A change of the handler's copy that nothing writes is a warning, once for each controller.
func TestUnwrittenChangesAreLoggedOnce(t *testing.T) {
	set := func(o unstructuredObject, field string) { o.Object[field] = map[string]any{"set": time.Now().String()} }
	for name, test := range map[string]struct {
		handle func(ctx context.Context, w *world, o unstructuredObject) error
		field  string
	}{
		"status": {func(_ context.Context, _ *world, o unstructuredObject) error { set(o, "status"); return nil }, "status"},
		"spec": {func(_ context.Context, _ *world, o unstructuredObject) error {
			set(o, "spec")
			return controller.RequeueAfter(time.Hour)
		}, "spec"},
		"labels": {func(_ context.Context, _ *world, o unstructuredObject) error {
			o.SetLabels(map[string]string{"a": "b"})
			return nil
		}, "metadata"},
		"spec, but only the status is written": {func(ctx context.Context, w *world, o unstructuredObject) error {
			set(o, "spec")
			return w.patch(ctx, "widgets", o.GetName(), `{"status":{"a":"b"}}`, "status")
		}, "spec"},
		"a copy":    {func(_ context.Context, _ *world, o unstructuredObject) error { set(o.DeepCopy(), "status"); return nil }, ""},
		"no change": {func(context.Context, *world, unstructuredObject) error { return nil }, ""},
		"failed runs": {func(_ context.Context, _ *world, o unstructuredObject) error {
			set(o, "spec")
			return controller.Terminal(errors.New("no"))
		}, ""},
		"written": {func(ctx context.Context, w *world, o unstructuredObject) error {
			set(o, "status")
			return w.patch(ctx, "widgets", o.GetName(), `{"status":{"a":"b"}}`, "status")
		}, ""},
		"the response": {func(_ context.Context, _ *world, o unstructuredObject) error {
			set(o, "status")
			o.SetResourceVersion("12345")
			return nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var logs journal
				c := w.config(func(ctx context.Context, o unstructuredObject) error { return test.handle(ctx, w, o) })
				c.Logger = logs.logger(slog.LevelWarn)
				for i := range 30 {
					w.put("widgets", fmt.Sprint("w", i), 1)
				}
				w.run(c)
				synctest.Wait()
				lines := slices.DeleteFunc(logs.take(), func(line string) bool { return !strings.Contains(line, "nothing writes") })
				if test.field == "" && len(lines) > 0 || test.field != "" && (len(lines) != 1 || !strings.Contains(lines[0], "field="+test.field)) {
					t.Errorf("logged %q, want %q", lines, test.field)
				}
			})
		})
	}
}
