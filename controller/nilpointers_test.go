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

// unmade is an adapter type. Every method of a nil pointer to it panics.
type unmade struct {
	controller.Recorder
	controller.EventRecorder
}

// TestNilPointersOfAdaptersAreIgnored checks nil pointers of an adapter type, which a program without metrics or Events may
// leave in the fields. They are not nil interfaces, but they must not end the process at the first problem.
func TestNilPointersOfAdaptersAreIgnored(t *testing.T) {
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

// unmadeElector is an elector type. The test uses a nil pointer to it, as if its constructor had failed.
type unmadeElector struct{ controller.LeaderElector }

// TestNilElectorIsRejected checks that a nil pointer in LeaderElector is an error and does not turn leader election off:
// the elector's constructor has failed.
func TestNilElectorIsRejected(t *testing.T) {
	w := newWorld(t)
	c := w.config(func(context.Context, unstructuredObject) error { return nil })
	var unmade *unmadeElector
	c.LeaderElector = unmade
	if _, err := controller.New(c); err == nil || !strings.Contains(err.Error(), "LeaderElector is a nil *controller_test.unmadeElector") {
		t.Errorf("New: %v, want that it names the field", err)
	}
}
