package subscription

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/informer"
)

// signals says that something has changed.
type signals struct {
	predicate informer.Predicate
	out       chan struct{} // with room for one, so that nobody waits
	complete  atomic.Bool   // everything that was there has been announced
}

func newSignals(predicate informer.Predicate) *signals {
	return &signals{predicate: predicate, out: make(chan struct{}, 1)}
}

func (s *signals) notify(c informer.Change) {
	if s.complete.Load() && passes(s.predicate, c) {
		s.signal()
	}
}

func (s *signals) synced() {
	s.complete.Store(true) // first, so that no change falls between
	s.signal()
}

func (s *signals) signal() {
	select {
	case s.out <- struct{}{}:
	default: // one is waiting, and covers this
	}
}

func (s *signals) deliver(ctx context.Context) { <-ctx.Done() }

func (s *signals) end() { close(s.out) }
