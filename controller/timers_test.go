package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
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

// An object that cannot be read may exist.
func TestTimerOfUnreadObjectFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("a")
		forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("jane may not"))
		server.Fail("list", forbidden)
		server.Fail("watch", forbidden)
		keys := make(chan kube.Key)
		var runs journal
		c := config(server, nil)
		c.Optional, c.Sources = true, []controller.Source{source.Channel("channel", keys)}
		c.Reconciler = func(ctx context.Context, key kube.Key) error {
			runs.add("%s: %s", key, causesOf(ctx))
			return controller.SetTimer(ctx, "again", time.Hour)
		}
		start(t, newController(t, c))
		keys <- key("a")
		time.Sleep(90 * time.Minute)
		wantLines(t, "runs while the kind is forbidden", runs.take(), "ns/a: channel: triggered", "ns/a: timer (again)")
		server.Fail("list", nil)
		server.Fail("watch", nil)
		time.Sleep(time.Minute)
		server.Delete(key("a"))
		time.Sleep(time.Minute)
		runs.take()
		time.Sleep(2 * time.Hour)
		wantLines(t, "runs after the deletion", runs.take())
	})
}
