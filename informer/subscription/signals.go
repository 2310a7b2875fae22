package subscription

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/informer"
)

// signals is the receiver of Signals.
type signals struct {
	predicate informer.Predicate
	out       chan struct{} // capacity 1, so that send never blocks
	complete  atomic.Bool   // all initial objects have been announced
}

func newSignals(predicate informer.Predicate) *signals {
	return &signals{predicate: predicate, out: make(chan struct{}, 1)}
}

func (s *signals) notify(c informer.Change) {
	if s.complete.Load() && s.predicate(c) {
		s.signal()
	}
}

func (s *signals) synced() {
	s.complete.Store(true) // before the signal, so that no later change is missed
	s.signal()
}

func (s *signals) signal() {
	select {
	case s.out <- struct{}{}:
	default: // the waiting signal covers this one
	}
}

func (s *signals) deliver(ctx context.Context) { <-ctx.Done() }

func (s *signals) end() { close(s.out) }
