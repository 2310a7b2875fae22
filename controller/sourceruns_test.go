package controller

import (
	"context"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

// TestSourceRemovedBeforeItsTermBeginsIsNotRun checks that a source that is removed before its term starts does not
// run.
func TestSourceRemovedBeforeItsTermBeginsIsNotRun(t *testing.T) {
	t.Parallel()
	runs := make(chan string, 2)
	source := func(name string) *namedSource {
		return &namedSource{PreparedSource: PreparedSource{Name: name, Run: func(ctx context.Context, _ Enqueue) error {
			runs <- name
			<-ctx.Done()
			return nil
		}}}
	}
	s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
	s.add(source("stays"))
	s.add(source("removed"))()
	ctx, cancel := context.WithCancel(t.Context())
	s.begin(ctx, ctx, cancel)
	if ran := <-runs; ran != "stays" {
		t.Errorf("%s ran", ran)
	}
	cancel()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	s.leave()
	if len(runs) != 0 {
		t.Errorf("%s ran", <-runs)
	}
}
