package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestTimerIsNotSetForReplacedObject checks that a timer that a run sets after its object was deleted and created again
// is not set for the new object.
func TestTimerIsNotSetForReplacedObject(t *testing.T) {
	for _, reconciler := range []bool{false, true} {
		t.Run(fmt.Sprint("reconciler ", reconciler), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs journal
				first := true
				setTimer := func(ctx context.Context) error {
					runs.add("%s", causesOf(ctx))
					if !first {
						return nil
					}
					first = false
					time.Sleep(time.Second)
					return controller.SetTimer(ctx, "expiry", time.Minute)
				}
				c := w.config(func(ctx context.Context, _ unstructuredObject) error { return setTimer(ctx) })
				if reconciler {
					c.Handler, c.Reconciler = nil, func(ctx context.Context, _ kube.Key) error { return setTimer(ctx) }
				}
				w.put("widgets", "a", 1)
				w.run(c)
				time.Sleep(500 * time.Millisecond)
				w.remove("widgets", "a")
				w.put("widgets", "a", 2)
				time.Sleep(time.Hour)
				if got := runs.take(); strings.Contains(fmt.Sprint(got), "expiry") {
					t.Errorf("the next object of the name has the timer of the one before: %q", got)
				}
			})
		})
	}
}
