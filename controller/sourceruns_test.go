package controller

import (
	"context"
	"testing"
	"testing/synctest"

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

// TestSourceIsRemovedWhileAnotherStarts checks that remove does not wait for the Start of an earlier source.
func TestSourceIsRemovedWhileAnotherStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
		ready, ran := make(chan struct{}), false
		s.add(&namedSource{PreparedSource: PreparedSource{Name: "slow", Start: func(ctx context.Context, _ Enqueue) func() error {
			<-ready
			return func() error { <-ctx.Done(); return nil }
		}}})
		remove := s.add(&namedSource{PreparedSource: PreparedSource{Name: "removed", Run: func(ctx context.Context, _ Enqueue) error {
			ran = true
			<-ctx.Done()
			return nil
		}}})
		removed, begun := false, make(chan struct{})
		go func() { defer close(begun); s.begin(ctx, ctx, cancel) }() // waited for below
		synctest.Wait()
		go func() { remove(); removed = true }() // waited for by synctest.Wait
		synctest.Wait()
		if !removed {
			t.Error("remove waits for the Start of another source")
		}
		close(ready)
		<-begun
		synctest.Wait()
		if ran || !removed {
			t.Errorf("after the start: the removed source ran: %t, remove has returned: %t", ran, removed)
		}
		cancel()
		if err := s.wait(); err != nil {
			t.Error(err)
		}
		s.leave()
	})
}
