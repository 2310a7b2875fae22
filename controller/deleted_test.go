package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/retry"
)

// deletions returns a hook for Config.Deleted that fails for objects with certain values.
func deletions(j *journal, fails map[string]error) func(context.Context, unstructuredObject, bool) error {
	return func(_ context.Context, last unstructuredObject, _ bool) error {
		value := fmt.Sprint(last.Object["spec"].(map[string]any)["value"])
		j.add("deleted %s", value)
		return fails[value]
	}
}

// deleteOld runs a controller with a hook for deleted objects, and deletes the object "old". The hook returns failure for
// it, each time.
func (w *world) deleteOld(failure error) (*journal, *controller.Controller[unstructuredObject]) {
	var seen journal
	c := w.config(func(_ context.Context, widget unstructuredObject) error {
		seen.add("handled %v", widget.Object["spec"].(map[string]any)["value"])
		return nil
	})
	c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 2}}
	c.Deleted = deletions(&seen, map[string]error{"old": failure})
	w.put("widgets", "a", "old")
	ctrl := w.run(c)
	time.Sleep(time.Second)
	w.remove("widgets", "a")
	return &seen, ctrl
}

// TestDeletedHookIsNotRetriedAfterTerminalFailure checks that the hook is not called again after a terminal failure, and
// that the next object of the name is handled as if the hook had succeeded.
func TestDeletedHookIsNotRetriedAfterTerminalFailure(t *testing.T) {
	for name, failure := range map[string]error{
		"terminal":  controller.Terminal(errors.New("no such bucket")),
		"given up":  errors.New("no such bucket"),
		"succeeded": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				seen, ctrl := w.deleteOld(failure)
				time.Sleep(time.Hour)
				expectNoFailures(t, "an hour after the object is gone", ctrl)
				seen.take()
				w.put("widgets", "a", "new")
				time.Sleep(time.Hour)
				if got := seen.take(); !slices.Equal(got, []string{"handled new"}) {
					t.Errorf("after the next object of the name has come: %q", got)
				}
			})
		})
	}
}

// TestTerminalFailureOfDeletedHookDoesNotBlockTheNextObject checks that a terminal failure of the hook does not block
// the next object of the name, which already exists.
func TestTerminalFailureOfDeletedHookDoesNotBlockTheNextObject(t *testing.T) {
	for name, failure := range map[string]error{
		"terminal": controller.Terminal(errors.New("no such bucket")),
		"given up": errors.New("no such bucket"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				seen, ctrl := w.deleteOld(failure)
				w.put("widgets", "a", "new")
				time.Sleep(time.Hour)
				if got := seen.take(); !slices.Equal(slices.Compact(got), []string{"handled old", "deleted old", "handled new"}) {
					t.Errorf("seen %q", got)
				}
				expectNoFailures(t, "at the end", ctrl)
			})
		})
	}
}

// TestDeletedHookIsRetriedBeforeTheNextObjectIsHandled checks that the hook is retried with the deleted object before the
// next object of the name is handled.
func TestDeletedHookIsRetriedBeforeTheNextObjectIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var seen journal
		var succeeds atomic.Bool
		c := w.config(func(_ context.Context, widget unstructuredObject) error {
			seen.add("handled %v", widget.Object["spec"].(map[string]any)["value"])
			return nil
		})
		c.Deleted = func(ctx context.Context, last unstructuredObject, stale bool) error {
			if succeeds.Load() {
				return deletions(&seen, nil)(ctx, last, stale)
			}
			return errors.Join(deletions(&seen, nil)(ctx, last, stale), errors.New("not now"))
		}
		w.put("widgets", "a", "old")
		w.run(c)
		time.Sleep(time.Second)
		w.remove("widgets", "a")
		w.put("widgets", "a", "new")
		synctest.Wait()
		if got := seen.take(); slices.Contains(got, "handled new") || !slices.Contains(got, "deleted old") {
			t.Errorf("while the hook fails: %q", got)
		}
		succeeds.Store(true)
		time.Sleep(time.Hour)
		if got := seen.take(); len(got) < 2 || !slices.Equal(got[len(got)-2:], []string{"deleted old", "handled new"}) {
			t.Errorf("when it succeeds: %q", got)
		}
	})
}

// TestDeletedHookIsNotCalledForDroppedDeletion checks that the hook is not called and that the key has no problem left.
func TestDeletedHookIsNotCalledForDroppedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var seen journal
		c := w.config(func(context.Context, unstructuredObject) error {
			seen.add("handled")
			return errors.New("not now")
		})
		c.Predicate = func(c informer.Change) bool { return c.Type != informer.Deleted }
		c.Deleted = deletions(&seen, nil)
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: 1}}
		w.put("widgets", "a", "old")
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		if s := ctrl.Stats(); s.Problems[controller.ProblemStalled] != 1 {
			t.Fatalf("problems %v, want the key stalled", s.Problems)
		}
		w.remove("widgets", "a")
		time.Sleep(time.Minute)
		if s := ctrl.Stats(); len(s.Problems) != 0 {
			t.Errorf("when the object is gone, problems %v", s.Problems)
		}
		w.put("widgets", "a", "new")
		time.Sleep(time.Minute)
		if got := seen.take(); slices.Contains(got, "deleted old") {
			t.Errorf("seen %q", got)
		}
	})
}
