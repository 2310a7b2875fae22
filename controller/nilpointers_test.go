package controller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

// unmade is the adapter of a program that has not made one: every method needs what it points to.
type unmade struct {
	controller.Recorder
	controller.EventRecorder
}

// A program that switches metrics or Events off leaves a nil pointer of the adapter's type in
// the field, which is no nil interface. It must not wait for the first problem to end the process.
func TestNilPointersAreNoAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config(func(context.Context, unstructuredObject) error { return errors.New("broken") })
		var off *unmade
		c.Events, c.Metrics = off, off
		c.Retry = retry.Config{Every: retry.Policy{MaxRetries: -1}}
		w.put("widgets", "a", 1)
		ctrl := w.run(c)
		time.Sleep(time.Minute)
		if problems := ctrl.Problems(); len(problems) != 1 || problems[0].Type != controller.ProblemStalled {
			t.Errorf("problems %v, want that the key is given up", problems)
		}
	})
}

// unmadeElector is an elector whose New has failed.
type unmadeElector struct{ controller.LeaderElector }

// A nil pointer of an elector does not mean that the controller works without leader election: the
// function that was to make it has failed.
func TestNilElectorIsRefused(t *testing.T) {
	w := newWorld(t)
	c := w.config(func(context.Context, unstructuredObject) error { return nil })
	var unmade *unmadeElector
	c.LeaderElector = unmade
	if _, err := controller.New(c); err == nil || !strings.Contains(err.Error(), "LeaderElector is a nil *controller_test.unmadeElector") {
		t.Errorf("New: %v, want that it names the field", err)
	}
}
