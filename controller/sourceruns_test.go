package controller

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestSourceRemovedBeforeTermDoesNotRun checks that a source that is removed before its term starts does not
// run.
func TestSourceRemovedBeforeTermDoesNotRun(t *testing.T) {
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
	s.add(source("stays"), false)
	s.add(source("removed"), false)()
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

// TestRemoveDoesNotWaitForStartOfAnotherSource checks that remove does not wait for the Start of an earlier source.
func TestRemoveDoesNotWaitForStartOfAnotherSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
		ready, ran := make(chan struct{}), false
		s.add(&namedSource{PreparedSource: PreparedSource{Name: "slow", Start: func(ctx context.Context, _ Enqueue) (func() error, error) {
			<-ready
			return func() error { <-ctx.Done(); return nil }, nil
		}}}, false)
		remove := s.add(&namedSource{PreparedSource: PreparedSource{Name: "removed", Run: func(ctx context.Context, _ Enqueue) error {
			ran = true
			<-ctx.Done()
			return nil
		}}}, false)
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

// usedInformer counts its users. Its other methods panic.
type usedInformer struct {
	informer.Any
	users   int
	proceed chan struct{} // a user leaves when it is closed
}

func (i *usedInformer) Join(context.Context) (leave func()) {
	i.users++
	return func() {
		<-i.proceed
		i.users--
	}
}

// TestSourceRemovedAtEndOfTermLeavesInformersOnce checks a source that is removed while the term waits for it.
// Leaving twice would stop an informer that has other users.
func TestSourceRemovedAtEndOfTermLeavesInformersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
		objects, release := &usedInformer{proceed: make(chan struct{})}, make(chan struct{})
		close(objects.proceed)
		remove := s.add(&namedSource{PreparedSource: PreparedSource{
			Name: "slow", Reads: []informer.Any{objects},
			Run: func(context.Context, Enqueue) error { <-release; return nil },
		}}, false)
		s.begin(ctx, t.Context(), cancel)
		cancel()
		removed, ended := make(chan struct{}), make(chan struct{})
		go func() { // waited for below
			defer close(ended)
			if err := s.wait(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		go func() { defer close(removed); remove() }() // waited for below
		synctest.Wait()
		close(release)
		<-ended
		<-removed
		if objects.users != 1 {
			t.Errorf("the term has %d users of the informer before its end, want 1", objects.users)
		}
		s.leave()
		if objects.users != 0 {
			t.Errorf("%d users of the informer after the end", objects.users)
		}
	})
}

// TestTermEndsAfterSourcesLeaveInformers checks that the informers of a source that is being removed end
// before the term.
func TestTermEndsAfterSourcesLeaveInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
		objects := &usedInformer{proceed: make(chan struct{})}
		s.begin(ctx, t.Context(), cancel)
		remove := s.add(&namedSource{PreparedSource: PreparedSource{
			Name: "source", Reads: []informer.Any{objects},
			Run: func(ctx context.Context, _ Enqueue) error { <-ctx.Done(); return nil },
		}}, false)
		removed, ended := make(chan struct{}), make(chan error, 1)
		go func() { defer close(removed); remove() }() // waited for below
		synctest.Wait()
		cancel()
		go func() { ended <- s.wait() }() // received below
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the term has ended before the informer of a removed source")
		}
		close(objects.proceed)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-removed
		s.leave()
		if objects.users != 0 {
			t.Errorf("%d users of the informer after the end", objects.users)
		}
	})
}

// joiningInformer is an informer whose last session ends slowly, so that Join waits. Its other methods panic.
type joiningInformer struct {
	usedInformer
	ended chan struct{} // Join returns when it is closed
}

func (i *joiningInformer) Join(ctx context.Context) (leave func()) {
	<-i.ended
	return i.usedInformer.Join(ctx)
}

// TestInformerJoinedAfterEndOfTermIsLeft checks a term whose time is over while begin still joins informers.
func TestInformerJoinedAfterEndOfTermIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSources("test", nil, func(*namedSource) Enqueue { return func(kube.Key, Trigger) {} }, nil)
		proceed := make(chan struct{})
		close(proceed)
		first, slow, last := &usedInformer{proceed: proceed}, &joiningInformer{usedInformer{proceed: proceed}, make(chan struct{})},
			&usedInformer{proceed: proceed}
		for _, read := range []informer.Any{first, slow, last} {
			s.add(&namedSource{PreparedSource: PreparedSource{
				Name: "source", Reads: []informer.Any{read},
				Run: func(context.Context, Enqueue) error { t.Error("the source runs after the end"); return nil },
			}}, false)
		}
		begun, left := make(chan struct{}), make(chan struct{})
		go func() { defer close(begun); s.begin(ctx, t.Context(), cancel) }() // waited for below
		synctest.Wait()
		cancel()
		go func() { defer close(left); s.leave() }() // waited for below
		synctest.Wait()
		close(slow.ended)
		<-begun
		<-left
		if first.users+slow.users+last.users != 0 {
			t.Errorf("users of the informers after the end: %d, %d and %d", first.users, slow.users, last.users)
		}
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestSourceAddedBetweenTerms checks a source whose Start, called by AddSource, returns when the next term has
// begun: remove must remove it from that term.
func TestSourceAddedBetweenTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := SourceFunc(func(ctx context.Context, _ Enqueue) error { <-ctx.Done(); return nil })
		c, err := New(Config[NoObject]{
			Name: "test", Reconciler: func(context.Context, kube.Key) error { return nil }, Sources: []Source{runs},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		first, second := newLoop(c, nil), newLoop(c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		first.sources.begin(ctx, t.Context(), cancel)
		c.set(PhaseRunning, first)
		var removed bool
		remove, err := c.AddSource(startFunc(func(ctx context.Context, _ Enqueue) (func() error, error) {
			c.set(PhaseStandby, nil)
			c.set(PhaseSyncing, second)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.added[0].remove = func() { removed = true } // as the begin of the term does
			return func() error { <-ctx.Done(); return nil }, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if remove(); !removed {
			t.Error("the source was not removed from the current term")
		}
		cancel()
		if err := first.sources.wait(); err != nil {
			t.Error(err)
		}
		first.sources.leave()
	})
}

// startFunc is the Start function of a source.
type startFunc func(ctx context.Context, enqueue Enqueue) (run func() error, err error)

func (f startFunc) Prepare(Target) (PreparedSource, error) {
	return PreparedSource{Name: "source", Start: f}, nil
}
