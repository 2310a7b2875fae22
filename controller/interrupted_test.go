package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/controller/internal/interruptions"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// interruptedDir returns a state directory of the controller "test" after processes that ended while they handled keys,
// by the number of these processes.
func interruptedDir(t *testing.T, counts map[string]int) string {
	t.Helper()
	dir := t.TempDir()
	for process := range slices.Max(slices.Collect(maps.Values(counts))) {
		f, err := interruptions.Open(dir, "test", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		err = f.SetShutdown(false)
		for name, count := range counts {
			if count > process {
				_, beginErr := f.Begin(key(name))
				err = errors.Join(err, beginErr)
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// interruptedKeys returns the counts that the next process reads.
func interruptedKeys(t *testing.T, dir string) map[string]int {
	t.Helper()
	f, err := interruptions.Open(dir, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for key, count := range f.Counts() {
		counts[key.Name] = count
	}
	return counts
}

func wantInterrupted(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	if got := interruptedKeys(t, dir); !maps.Equal(got, want) {
		t.Errorf("interrupted keys of the next process: %v, want %v", got, want)
	}
}

func problemsOf(ctrl *controller.Controller[configMap], problemType controller.ProblemType) (keys []string) {
	for _, problem := range ctrl.Problems() {
		if problem.Type == problemType {
			keys = append(keys, problem.Key.Name)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestInterruptedKeysRunLast(t *testing.T) {
	reconciler := func(c *controller.Config[configMap]) {
		handler := c.Handler
		c.Handler, c.Reconciler = nil, func(ctx context.Context, key kube.Key) error { return handler(ctx, object(key.Name, "")) }
	}
	debounce := func(c *controller.Config[configMap]) { c.Queue.Debounce = time.Second }
	priority := func(c *controller.Config[configMap]) {
		c.Queue.Priority = func(informer.Change) controller.Priority { return controller.PriorityHigh }
	}
	limit := func(c *controller.Config[configMap]) {
		c.Queue.GroupLimit = 2
	}
	// lists enqueues all keys, as a source does that lists their children, and some at once.
	lists := func(c *controller.Config[configMap]) {
		c.Sources = append(c.Sources, controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
			for n := range 200 {
				enqueue(key(fmt.Sprintf("c%03d", n)), controller.Trigger{FromList: n%2 == 0, Detail: "child"})
			}
			<-ctx.Done()
			return nil
		}))
	}
	for name, settings := range map[string][]func(*controller.Config[configMap]){
		"handler":            nil,
		"reconciler":         {reconciler},
		"debounce":           {debounce},
		"priority":           {priority},
		"limit of the group": {limit},
		"source that lists":  {lists},
		"all of them":        {reconciler, debounce, priority, limit, lists},
		"own writes":         {func(c *controller.Config[configMap]) { c.Runs.HandleOwnWrites = true }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := map[string]int{"c100": 3, "c005": 1, "c150": 2}
				dir := interruptedDir(t, counts)
				server := newServer()
				for n := range 200 {
					server.Put(object(fmt.Sprintf("c%03d", n), "1"))
				}
				var runs, logs journal
				var current atomic.Int32 // interrupted keys in work
				c := config(server, func(_ context.Context, obj configMap) error {
					if counts[obj.Name] > 0 {
						if current.Add(1) > 1 {
							t.Error("two interrupted keys are handled at the same time")
						}
						defer current.Add(-1)
						time.Sleep(10 * time.Second)
					}
					time.Sleep(10 * time.Millisecond)
					runs.add("%s", obj.Name)
					return nil
				})
				c.Runs.StateDir, c.Workers, c.Logger = dir, 4, logs.logger(slog.LevelWarn)
				for _, set := range settings {
					set(&c)
				}
				ctrl := newController(t, c)
				stop := start(t, ctrl)
				time.Sleep(100 * time.Millisecond)
				server.Put(object("c100", "2")) // a change does not make it run earlier
				time.Sleep(25 * time.Millisecond)
				if got := problemsOf(ctrl, controller.ProblemInterrupted); !slices.Equal(got, []string{"c005", "c100", "c150"}) {
					t.Errorf("problems during the first pass: %v", got)
				}
				if text, want := ctrl.Explain(key("c100")), "the process has ended 3 times while this key was handled"; !strings.Contains(text, want) {
					t.Errorf("Explain: %q is missing in\n%s", want, text)
				}
				time.Sleep(15 * time.Second)
				server.Put(object("c001", "2")) // another key runs beside an interrupted one
				time.Sleep(time.Minute)
				got := runs.take()
				isInterrupted := func(name string) bool { return counts[name] > 0 }
				rest := slices.Compact(slices.Sorted(slices.Values(got[:slices.IndexFunc(got, isInterrupted)])))
				if len(rest) != 197 {
					t.Errorf("%d other keys ran first", len(rest))
				}
				last := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return !isInterrupted(name) })
				if !slices.Equal(last, []string{"c005", "c150", "c100"}) {
					t.Errorf("runs of interrupted keys: %v", last)
				}
				if got[len(got)-1] != "c100" || !slices.Contains(got[198:], "c001") {
					t.Errorf("the last runs: %v", got[197:])
				}
				if left := problemsOf(ctrl, controller.ProblemInterrupted); len(left) > 0 {
					t.Errorf("problems after the first pass: %v", left)
				}
				if lines := logs.take(); len(lines) != 3 || !strings.Contains(lines[0], "problem=interrupted") {
					t.Errorf("log: %q", lines)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				wantInterrupted(t, dir, map[string]int{})
			})
		})
	}
}

// A failed run does not show that the key can be handled: its retries wait for other interrupted keys.
func TestInterruptedKeysThatFailAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"fails": 1, "terminal": 1, "works": 2})
		server := newServer("fails", "terminal", "works")
		var runs journal
		var repaired atomic.Bool
		c := config(server, func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			switch {
			case obj.Name == "fails" && !repaired.Load():
				return errors.New("no")
			case obj.Name == "terminal" && obj.Data["value"] == "1":
				return controller.Terminal(errors.New("no"))
			}
			return nil
		})
		c.Runs.StateDir = dir
		c.Retry.Every.Base, c.Retry.Every.Jitter = time.Minute, -1
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		time.Sleep(time.Second)
		if got := runs.take(); !slices.Equal(got, []string{"fails", "terminal", "works"}) {
			t.Errorf("runs: %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInterrupted(t, dir, map[string]int{"fails": 1, "terminal": 1})
		stop = start(t, ctrl)
		time.Sleep(time.Second)
		if got := runs.take(); !slices.Equal(got, []string{"works", "fails", "terminal"}) {
			t.Errorf("runs after the second start: %v", got)
		}
		repaired.Store(true)
		server.Put(object("terminal", "2"))
		time.Sleep(2 * time.Minute)
		if got := runs.take(); !slices.Equal(got, []string{"terminal", "fails"}) {
			t.Errorf("runs after the repair: %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInterrupted(t, dir, map[string]int{})
	})
}

// A shutdown does not wait for held keys, and counts nothing, also if the process ends while a handler runs.
func TestShutdownInterruptsNoKey(t *testing.T) {
	for name, drainQueue := range map[string]bool{"ready keys are left": false, "ready keys are drained": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := interruptedDir(t, map[string]int{"a": 1, "b": 1})
				c := config(newServer("a", "b", "long"), func(ctx context.Context, obj configMap) error {
					if obj.Name != "long" {
						t.Errorf("%s was handled", obj.Name)
					}
					<-ctx.Done()
					return ctx.Err()
				})
				c.Runs.StateDir, c.Runs.DrainQueue = dir, drainQueue
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				ctrl := newController(t, c)
				go func() { done <- ctrl.Run(ctx) }() // waited for below
				time.Sleep(time.Second)
				if text, want := ctrl.Explain(key("a")), "ns/a is held back until other keys have run: listed"; !strings.Contains(text, want) {
					t.Errorf("Explain: %q is missing in\n%s", want, text)
				}
				killed := copyOf(t, dir)
				wantInterrupted(t, killed, map[string]int{"a": 1, "b": 1, "long": 1})
				cancel()
				synctest.Wait()
				killed = copyOf(t, dir)
				wantInterrupted(t, killed, map[string]int{"a": 1, "b": 1})
				began := time.Now()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 25*time.Second {
					t.Errorf("the drain took %s", took)
				}
				wantInterrupted(t, dir, map[string]int{"a": 1, "b": 1})
			})
		})
	}
}

func TestDrainDoesNotWaitForInterruptedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1})
		c := config(newServer("a", "slow"), func(_ context.Context, obj configMap) error {
			if obj.Name == "a" {
				t.Error("it was handled in the drain")
			}
			time.Sleep(2 * time.Second)
			return nil
		})
		c.Runs.StateDir, c.Runs.DrainQueue = dir, true
		stop := start(t, newController(t, c))
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the drain took %s", took)
		}
		wantInterrupted(t, dir, map[string]int{"a": 1})
	})
}

// copyOf returns a copy of a state directory, as a process leaves it that ends now.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return killed
}

func TestInterruptedKeysDoNotWaitForStuckHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1, "b": 2})
		release := make(chan struct{})
		var runs journal
		c := config(newServer("stuck", "a", "b"), func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			if obj.Name != "b" {
				<-release
			}
			return nil
		})
		c.Runs.StateDir, c.Workers, c.Runs.StuckAfter = dir, 1, time.Minute
		ctrl := newController(t, c)
		stop := start(t, ctrl)
		for _, want := range [][]string{{"stuck"}, {"a"}, {"b"}} {
			time.Sleep(50 * time.Second)
			if got := runs.take(); !slices.Equal(got, want) {
				t.Errorf("runs: %v, want %v", got, want)
			}
			time.Sleep(10 * time.Second)
		}
		// Each worker that replaced a stuck one has a place in the file.
		wantInterrupted(t, copyOf(t, dir), map[string]int{"stuck": 1, "a": 2})
		close(release)
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInterrupted(t, dir, map[string]int{})
	})
}

// Each term holds the keys back that are still interrupted. The files are read once per Run.
func TestInterruptedKeysInEachTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1})
		var runs journal
		var blocks atomic.Bool
		blocks.Store(true)
		e := &elector{terms: make(chan chan struct{})}
		c := config(newServer("a", "other"), func(ctx context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			if obj.Name == "other" && blocks.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		c.Runs.StateDir, c.LeaderElector = dir, e
		stop := start(t, newController(t, c))
		lost := make(chan struct{})
		e.terms <- lost
		time.Sleep(time.Second)
		close(lost)
		time.Sleep(time.Second)
		if got := runs.take(); !slices.Equal(got, []string{"other"}) {
			t.Errorf("runs of the first term: %v", got)
		}
		wantInterrupted(t, copyOf(t, dir), map[string]int{"a": 1}) // a standby handles nothing
		blocks.Store(false)
		e.terms <- make(chan struct{})
		time.Sleep(time.Second)
		if got := runs.take(); !slices.Equal(got, []string{"other", "a"}) {
			t.Errorf("runs of the second term: %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInterrupted(t, dir, map[string]int{})
	})
}

func TestInterruptedKeysWithoutObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"gone": 1, "a": 1, "ignored": 1})
		server := newServer("a", "ignored")
		var runs journal
		c := config(server, func(_ context.Context, obj configMap) error {
			runs.add("%s", obj.Name)
			return errors.New("no")
		})
		c.Runs.StateDir = dir
		c.Predicate = func(change informer.Change) bool { return change.Key.Name != "ignored" }
		ctrl := newController(t, c)
		start(t, ctrl)
		time.Sleep(time.Second)
		if got := problemsOf(ctrl, controller.ProblemInterrupted); !slices.Equal(got, []string{"a", "ignored"}) {
			t.Errorf("interrupted after the first pass: %v", got)
		}
		wantInterrupted(t, copyOf(t, dir), map[string]int{"a": 1, "ignored": 1})
		server.Delete(key("ignored"))
		server.Delete(key("a"))
		time.Sleep(time.Hour)
		if got := problemsOf(ctrl, controller.ProblemInterrupted); len(got) > 0 {
			t.Errorf("interrupted after the deletions: %v", got)
		}
		if len(runs.take()) == 0 {
			t.Error("no run")
		}
	})
}

// An object that could not be read may exist: its key remains interrupted until the kind is read, or has been removed.
func TestInterruptedKeysOfUnreadKindAreKept(t *testing.T) {
	resource := corev1.Resource("configmaps")
	for name, test := range map[string]struct {
		err  error
		kept bool
	}{
		"forbidden":  {apierrors.NewForbidden(resource, "", errors.New("jane may not")), true},
		"no backend": {apierrors.NewServiceUnavailable("the aggregated API is down"), true},
		"removed":    {kube.ErrNotServed, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := map[string]int{"a": 2, "gone": 1}
				dir := interruptedDir(t, counts)
				server := newServer("a")
				set := func(err error) { server.Fail("list", err); server.Fail("watch", err) }
				set(test.err)
				var runs journal
				c := config(server, func(_ context.Context, obj configMap) error {
					runs.add("%s", obj.Name)
					return nil
				})
				c.Runs.StateDir, c.Optional = dir, true
				ctrl := newController(t, c)
				start(t, ctrl)
				time.Sleep(time.Hour)
				if err := ctrl.Ready(); err != nil {
					t.Error(err)
				}
				want, problems := counts, []string{"a", "gone"}
				if !test.kept {
					want, problems = map[string]int{}, nil
				}
				wantInterrupted(t, copyOf(t, dir), want)
				if got := problemsOf(ctrl, controller.ProblemInterrupted); !slices.Equal(got, problems) {
					t.Errorf("interrupted while the kind cannot be read: %v, want %v", got, problems)
				}
				set(nil)
				time.Sleep(time.Hour)
				wantLines(t, "runs when the kind can be read", runs.take(), "a")
				wantInterrupted(t, copyOf(t, dir), map[string]int{})
				if got := problemsOf(ctrl, controller.ProblemInterrupted); len(got) > 0 {
					t.Errorf("interrupted in the end: %v", got)
				}
			})
		})
	}
}

func TestStateDirErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := config(newServer(), func(context.Context, configMap) error { return nil })
		run := func(name, dir string) error {
			c := c
			c.Name, c.Runs.StateDir = name, dir
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return newController(t, c).Run(ctx)
		}
		if err := run("test", filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), `run controller "test": open its files in StateDir: open `) {
			t.Errorf("a missing directory: %v", err)
		}
		c.Runs.StateDir = dir
		stop := start(t, newController(t, c))
		synctest.Wait()
		if err := run("other", dir); err != nil {
			t.Errorf("another controller: %v", err)
		}
		if err := run("test", dir); err == nil || !strings.Contains(err.Error(), "which another controller or process may use") {
			t.Errorf("the same controller: %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := run("test", dir); err != nil {
			t.Errorf("the same controller, later: %v", err)
		}
	})
}

func TestRemovedStateDir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1, "b": 1, "c": 1})
		var runs, logs journal
		c := config(newServer("a", "b", "c", "other"), func(_ context.Context, obj configMap) error {
			if obj.Name == "other" {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
			runs.add("%s", obj.Name)
			return nil
		})
		c.Runs.StateDir, c.Logger = dir, logs.logger(slog.LevelWarn)
		start(t, newController(t, c))
		time.Sleep(time.Second)
		if got := runs.take(); !slices.Equal(got, []string{"other", "a", "b", "c"}) {
			t.Errorf("runs: %v", got)
		}
		lines := slices.DeleteFunc(logs.take(), func(line string) bool { return !strings.Contains(line, "cannot record the keys in work") })
		if len(lines) != 1 {
			t.Errorf("log: %q", lines)
		}
	})
}

// Interrupted keys wait for the first pass, and not for keys that sources enqueue with a delay.
func TestInterruptedKeysDoNotWaitForDelayedTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"bad": 1})
		var runs journal
		began := time.Now()
		c := config(newServer("a", "bad"), nil)
		c.Handler, c.Reconciler = nil, func(_ context.Context, key kube.Key) error {
			runs.add("%s %s", key.Name, time.Since(began).Round(time.Second))
			return nil
		}
		c.Runs.StateDir = dir
		c.Sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
			enqueue(key("later"), controller.Trigger{After: time.Hour})
			<-ctx.Done()
			return nil
		})}
		start(t, newController(t, c))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		wantLines(t, "runs", runs.take(), "a 0s", "bad 0s", "later 1h0m0s")
	})
}

// A held key without an object is not held any longer: the queue would keep it, and a new object of the name would never
// be handled.
func TestDeletedKeyIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1})
		server := newServer("a", "slow")
		var runs journal
		began := time.Now()
		c := config(server, func(_ context.Context, obj configMap) error {
			if obj.Name == "slow" {
				time.Sleep(10 * time.Second)
			}
			runs.add("%s %s", obj.Name, time.Since(began).Round(time.Second))
			return nil
		})
		c.Runs.StateDir = dir
		c.Predicate = func(change informer.Change) bool { return change.Type != informer.Deleted }
		ctrl := newController(t, c)
		start(t, ctrl)
		time.Sleep(time.Second)
		if got := problemsOf(ctrl, controller.ProblemInterrupted); !slices.Equal(got, []string{"a"}) {
			t.Errorf("interrupted: %v", got)
		}
		server.Delete(key("a"))
		time.Sleep(time.Second)
		if got := problemsOf(ctrl, controller.ProblemInterrupted); len(got) > 0 {
			t.Errorf("interrupted after the deletion: %v", got)
		}
		server.Put(object("a", "2"))
		time.Sleep(time.Minute)
		wantLines(t, "runs", runs.take(), "a 2s", "slow 10s")
		wantInterrupted(t, copyOf(t, dir), map[string]int{})
	})
}

// Keys that no source lists remain interrupted while they run, or wait for another interrupted key.
func TestUnlistedInterruptedKeysAreKeptUntilRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := interruptedDir(t, map[string]int{"a": 1, "b": 2})
		var runs journal
		began := time.Now()
		ctrl, err := controller.New(controller.Config[controller.NoObject]{
			Name: "test", ResyncInterval: time.Hour, Workers: 2, Logger: slog.New(slog.DiscardHandler),
			Runs: controller.RunsConfig{StateDir: dir, StuckAfter: 24 * time.Hour},
			Reconciler: func(_ context.Context, key kube.Key) error {
				runs.add("%s %s", key.Name, time.Since(began).Round(time.Second))
				time.Sleep(150 * time.Minute)
				return nil
			},
			Sources: []controller.Source{controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
				enqueue(key("a"), controller.Trigger{})
				time.Sleep(time.Second) // so that a, not b, has the first turn
				enqueue(key("b"), controller.Trigger{})
				<-ctx.Done()
				return nil
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := start(t, ctrl)
		time.Sleep(140 * time.Minute) // after two collections
		wantLines(t, "runs", runs.take(), "a 0s")
		wantInterrupted(t, copyOf(t, dir), map[string]int{"a": 2, "b": 2})
		time.Sleep(3 * time.Hour)
		wantLines(t, "runs", runs.take(), "b 2h30m0s")
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantInterrupted(t, dir, map[string]int{})
	})
}
