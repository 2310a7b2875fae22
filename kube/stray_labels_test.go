package kube

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// labelled calls f on a goroutine that has the label of a controller's workers, and waits for it.
func labelled(controller string, f func()) {
	var wait sync.WaitGroup
	wait.Go(func() {
		pprof.Do(context.Background(), pprof.Labels(leadership.ControllerLabel, controller), func(context.Context) { f() })
	})
	wait.Wait()
}

// controllerHere returns the controller that s finds for the calling goroutine.
func controllerHere(s *strays) string {
	var from stack
	runtime.Callers(2, from.pcs[:]) // without this function, which is elsewhere in the profile
	return s.controllerOfGoroutine(from)
}

// waitInProfile waits until n goroutines wait for a mutex in controllerOfGoroutine.
func waitInProfile(n int) {
	for text := make([]byte, 1<<20); ; runtime.Gosched() {
		waiting := 0
		for goroutine := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
			if strings.Contains(goroutine, "sync.(*Mutex).Lock") && strings.Contains(goroutine, "controllerOfGoroutine") {
				waiting++
			}
		}
		if waiting >= n {
			return
		}
	}
}

// Several Clusters of one process may read labels at the same time. The same function is then on the stacks of several
// goroutines.
//
//nolint:paralleltest // waitInProfile counts the goroutines of the process
func TestConcurrentControllerOfGoroutine(t *testing.T) {
	var clients sync.WaitGroup
	waiting := newStrays()
	waiting.mu.Lock()
	clients.Go(func() { labelled("other", func() { controllerHere(waiting) }) })
	clients.Go(func() { controllerHere(waiting) })
	waitInProfile(2)

	s := newStrays()
	if got := controllerHere(s); got != "" {
		t.Errorf("a goroutine without a label is attributed to controller %q", got)
	}
	labelled("mine", func() {
		if got := controllerHere(s); got != "mine" {
			t.Errorf("a goroutine of controller mine is attributed to %q", got)
		}
		var wait sync.WaitGroup
		wait.Go(func() {
			if got := controllerHere(s); got != "mine" {
				t.Errorf("a goroutine that controller mine has started is attributed to %q", got)
			}
		})
		wait.Wait()
	})
	waiting.mu.Unlock()
	clients.Wait()
}

// A goroutine must be found even if its stack is deeper than the recorded part.
func TestControllerOfDeepGoroutine(t *testing.T) {
	t.Parallel()
	var deep func(n int) string
	s := newStrays()
	deep = func(n int) string {
		if n > 0 {
			return deep(n - 1)
		}
		return controllerHere(s)
	}
	for _, depth := range []int{10, 50, 63, 64, 65, 100, 120, 200, 1000} {
		labelled("deep", func() {
			if got := deep(depth); got != "deep" {
				t.Errorf("%d frames: %q", depth, got)
			}
		})
		if got := deep(depth); got != "" {
			t.Errorf("%d frames, no label: %q", depth, got)
		}
	}
}

// Goroutines of several Clusters call at the same time, with equal stacks. A goroutine without a label must not be
// taken for a handler's.
func TestControllerOfGoroutineOfManyClusters(t *testing.T) {
	t.Parallel()
	var wait sync.WaitGroup
	for range testlength.Count(2, 8) {
		wait.Go(func() {
			for s := newStrays(); s.profiles < maxProfiles; {
				if got := controllerHere(s); got != "" {
					t.Errorf("a goroutine without a label is attributed to controller %q", got)
					return
				}
			}
		})
		wait.Go(func() {
			for s := newStrays(); s.profiles < maxProfiles; {
				labelled("mine", func() {
					if got := controllerHere(s); got != "mine" {
						t.Errorf("a goroutine of controller mine is attributed to %q", got)
					}
				})
			}
		})
	}
	wait.Wait()
}
