package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestStateOfDeletedObjectsIsReleased creates objects, handles them in every possible way, deletes them, and inspects
// the state that the loop keeps.
func TestStateOfDeletedObjectsIsReleased(t *testing.T) {
	type config = Config[*corev1.ConfigMap]
	fail := errors.New("no")
	for name, set := range map[string]func(c *config){
		"handler": func(c *config) {
			c.Handler = func(context.Context, *corev1.ConfigMap) error { return nil }
		},
		"handler that sets timers, and a hook": func(c *config) {
			c.Handler = func(ctx context.Context, _ *corev1.ConfigMap) error {
				return SetTimer(ctx, "t", time.Hour)
			}
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return nil }
		},
		"handler and hook that fail": func(c *config) {
			c.Handler = func(context.Context, *corev1.ConfigMap) error { return fail }
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return Terminal(fail) }
		},
		"hook that is given up": func(c *config) {
			c.Handler = func(context.Context, *corev1.ConfigMap) error { return nil }
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return fail }
			c.Retry.Every.MaxRetries = 1
		},
		"hook, and a predicate that drops deletions": func(c *config) {
			c.Handler = func(context.Context, *corev1.ConfigMap) error { return Terminal(fail) }
			c.Deleted = func(context.Context, *corev1.ConfigMap, bool) error { return nil }
			c.Predicate = func(c informer.Change) bool { return c.Type != informer.Deleted }
		},
		"reconciler": func(c *config) {
			c.Reconciler = func(context.Context, kube.Key) error { return nil }
		},
		"reconciler that is given up": func(c *config) {
			c.Reconciler = func(context.Context, kube.Key) error { return fail }
			c.Retry.Every.MaxRetries = 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
				c := config{Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler)}
				set(&c)
				ctrl, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, ctrl.Run)
				synctest.Wait()
				for i := range 20 {
					name := fmt.Sprint("c", i)
					server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
					time.Sleep(time.Second)
					server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": "b"}})
					time.Sleep(time.Second)
					server.Delete(kube.Key{Namespace: "ns", Name: name})
				}
				time.Sleep(time.Hour)
				synctest.Wait() // also for the race detector
				l := ctrl.loop
				if l.successes.Len() != 0 || len(l.failures.keys) != 0 || len(l.ends.keys) != 0 || len(l.timers.keys) != 0 || len(l.problems.open) != 0 {
					t.Errorf("of objects that are gone are kept: %d successes, %d failures, %d ends, %d timers, %d problems",
						l.successes.Len(), len(l.failures.keys), len(l.ends.keys), len(l.timers.keys), len(l.problems.open))
				}
			})
		})
	}
}

// TestExpiredPauseIsRemovedWithoutRun checks that an expired pause of a hot loop is removed even if the key never
// runs again. A key's own pause is checked only before a run.
func TestExpiredPauseIsRemovedWithoutRun(t *testing.T) {
	t.Parallel()
	hot, now := newHotLoops(&problems{open: map[problemID]Problem{}}, &contentDecoder{}, time.Minute, 0), time.Now()
	hot.pauses[kube.Key{Name: "over"}], hot.pauses[kube.Key{Name: "lasting"}] = now.Add(-time.Second), now.Add(time.Second)
	hot.checked(now, nil)
	if _, lasts := hot.pauses[kube.Key{Name: "lasting"}]; len(hot.pauses) != 1 || !lasts {
		t.Errorf("kept: %v", hot.pauses)
	}
}

// TestManyProblemsDoNotHideStuckHandler checks that a stuck handler is always among the problems, although their
// number is limited. Readiness and metrics depend on it.
func TestManyProblemsDoNotHideStuckHandler(t *testing.T) {
	t.Parallel()
	all := problems{open: map[problemID]Problem{}}
	all.begun(func(context.Context, Problem, bool) {})
	for i := range 2 * maxProblems {
		all.begin(t.Context(), Problem{Type: ProblemStalled, Key: kube.Key{Name: fmt.Sprint(i)}}, true)
	}
	all.begin(t.Context(), Problem{Type: ProblemStuck, Key: kube.Key{Name: "a"}}, true)
	all.begin(t.Context(), Problem{Type: ProblemQueueGrowing}, true)
	counts := all.counts()
	if counts[ProblemStalled] != maxProblems || counts[ProblemStuck] != 1 || counts[ProblemQueueGrowing] != 1 {
		t.Errorf("kept: %v", counts)
	}
}

// TestStuckWorkerIsReplacedDuringTerm checks that a stuck worker is replaced only during the term and at most
// as often as allowed, because the drain waits for the workers that exist when it starts.
func TestStuckWorkerIsReplacedDuringTerm(t *testing.T) {
	t.Parallel()
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Workers: 2,
		Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true),
		Handler:   func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(ctrl, nil)
	t.Cleanup(func() { l.queue.ShutDown(); l.pool.wait() })
	l.pool.start(t.Context(), t.Context())
	for n := 2; n < 2*(1+replacements); n++ {
		if ended, replaced := l.pool.replace(t.Context(), &worker{}); ended || !replaced {
			t.Errorf("with %d workers: ended %v, replaced %v", n, ended, replaced)
		}
	}
	if ended, replaced := l.pool.replace(t.Context(), &worker{}); ended || replaced {
		t.Errorf("with %d workers: ended %v, replaced %v", len(l.pool.workers), ended, replaced)
	}
	l.pool.end()
	l.pool.mu.Lock()
	clear(l.pool.workers)
	l.pool.mu.Unlock()
	if ended, replaced := l.pool.replace(t.Context(), &worker{}); !ended || replaced {
		t.Errorf("while the term ends: ended %v, replaced %v", ended, replaced)
	}
}

// TestRecordsKeepNoLargeStates checks that the records of runs do not keep the states of large objects.
func TestRecordsKeepNoLargeStates(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		server := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
		c := Config[*corev1.ConfigMap]{
			Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler),
			Handler: func(context.Context, *corev1.ConfigMap) error { return nil },
		}
		ctrl, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, ctrl.Run)
		synctest.Wait()
		const objects, size = 100, 64 << 10
		for round := range 6 {
			for n := range objects {
				data := make([]byte, size/2)
				_, _ = rand.Read(data)
				server.Put(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("c", n)},
					Data:       map[string]string{"value": hex.EncodeToString(data), "round": fmt.Sprint(round)},
				})
			}
			time.Sleep(time.Second)
		}
		server.Compact()
		synctest.Wait()
		ofStore := ctrl.informer.Health()
		with := heap()
		ctrl.history.mu.Lock()
		ctrl.history.runs.clear()
		clear(ctrl.history.keys)
		ctrl.history.order.Init()
		ctrl.history.skips.clear()
		ctrl.history.mu.Unlock()
		without := heap()
		t.Logf("store %+v; the history took %d kB", ofStore, (with-without)>>10)
		if with-without > 4<<20 {
			t.Errorf("the records of %d objects of %d kB take %d kB", objects, size>>10, (with-without)>>10)
		}
	})
}

// oneTerm is an elector that leads until lose is closed.
type oneTerm struct{ lose chan struct{} }

func (oneTerm) Ready() error { return nil }

func (e oneTerm) Run(ctx context.Context, work func(context.Context) error) error {
	term, cancel := context.WithCancelCause(ctx)
	go func() { <-e.lose; cancel(kube.ErrLeadershipLost) }() // ends with the test
	if err := work(term); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// TestStandbyReleasesStateOfTerm checks that a standby keeps nothing of its last term.
func TestStandbyReleasesStateOfTerm(t *testing.T) {
	server := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
	for n := range 10 {
		server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("c", n)}})
	}
	e := oneTerm{make(chan struct{})}
	handled := make(chan struct{}, 100)
	ctrl, err := New(Config[*corev1.ConfigMap]{
		Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler), LeaderElector: e,
		Handler: func(ctx context.Context, _ *corev1.ConfigMap) error {
			handled <- struct{}{}
			return SetTimer(ctx, "t", time.Hour)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, ctrl.Run)
	for range 10 {
		<-handled
	}
	ctrl.mu.Lock()
	term := weak.Make(ctrl.loop)
	ctrl.mu.Unlock()
	close(e.lose)
	for ctrl.Stats().Phase != PhaseStandby { // without a limit: otherwise the test ends with the time of go test
		goruntime.Gosched()
	}
	for range 20 {
		goruntime.GC()
	}
	if term.Value() != nil {
		t.Error("the loop of the term is kept")
	}
}

// TestFailuresReleaseMemory checks that the memory of many failures is freed while one key continues to fail.
func TestFailuresReleaseMemory(t *testing.T) {
	const storm = 100_000
	f := failures{keys: map[kube.Key]*failing{}}
	fail := func(n int) kube.Key {
		key := kube.Key{Namespace: "ns", Name: fmt.Sprint("an-object-", n)}
		f.failed(key, "uid", retry.Default, context.Canceled, time.Now(), func(*failing) {})
		return key
	}
	fail(-1)
	before := heap()
	var keys []kube.Key
	for n := range storm {
		keys = append(keys, fail(n))
	}
	for _, key := range keys {
		f.forget(key)
	}
	clear(keys) // also frees the names
	after := heap()
	t.Logf("%d kB stay", (after-before)>>10)
	if after-before > 200<<10 {
		t.Errorf("%d kB stay", (after-before)>>10)
	}
	goruntime.KeepAlive(&f)
}

// TestHistoryKeepsBoundedStates checks the size of the objects' states that runs and skips keep, after many changes of
// many large objects that cannot be compressed, and that the latest causes still show what changed.
func TestHistoryKeepsBoundedStates(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		server := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
		ctrl, err := New(Config[*corev1.ConfigMap]{
			Name: "test", Retriever: server, Logger: slog.New(slog.DiscardHandler), ResyncInterval: -1,
			Handler:   func(context.Context, *corev1.ConfigMap) error { return nil },
			Predicate: func(c informer.Change) bool { return c.Key.Name != "skipped" },
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, ctrl.Run)
		put := func(name string) {
			content := make([]byte, 5000)
			_, _ = rand.Read(content)
			server.Put(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": hex.EncodeToString(content)},
			})
		}
		for range 4 {
			for i := range 300 {
				put(fmt.Sprint("c", i))
				put("skipped")
				time.Sleep(time.Second)
			}
		}
		synctest.Wait()
		h, kept, last := ctrl.history, 0, 0
		for _, entry := range h.keys {
			for _, run := range historyOf(entry).runs.values {
				for _, cause := range run.run.Causes.list.List() {
					kept += cause.difference.size()
				}
			}
		}
		for _, skip := range h.skips.values {
			kept += skip.Cause.difference.size()
		}
		for _, run := range ctrl.RecentRuns()[:10] {
			if strings.Contains(run.Causes.String(), "updated (spec)") {
				last++
			}
		}
		if kept > keptStates || kept < keptStates/2 || last != 10 {
			t.Errorf("runs and skips keep states of %d bytes, want at most %d; %d of the last 10 show what changed: %s", kept, keptStates, last,
				ctrl.RecentRuns()[0].Causes)
		}
	})
}
