package informer

import (
	"errors"
	"fmt"
	"time"
)

// Health is the truth about an informer at one moment.
type Health struct {
	// Informer is the informer's name, Retrieves what it lists and watches.
	Informer  string
	Retrieves string
	// Running is true while somebody runs the informer.
	Running bool
	// Synced is true once everything has been listed since the informer was started.
	Synced bool
	// Objects is the number of objects kept.
	Objects int
	// LastEvent is when the last list, event or bookmark arrived. Zero: none yet.
	LastEvent time.Time
	// Err is why the informer cannot list or watch now. Nil when it can.
	Err error
	// ErrSince is when Err began.
	ErrSince time.Time
}

// Ready returns nil when the informer is synced and its watch is alive; otherwise an
// error that says which informer is missing what.
func (h Health) Ready() error {
	switch {
	case !h.Running:
		return fmt.Errorf("informer %q of %s: not running", h.Informer, h.Retrieves)
	case h.Err != nil:
		return fmt.Errorf("informer %q: %w", h.Informer, h.Err)
	case !h.Synced:
		return fmt.Errorf("informer %q of %s: the first list is under way", h.Informer, h.Retrieves)
	}
	return nil
}

// Health returns the informer's state.
func (i *Informer[T]) Health() Health {
	h := Health{Informer: i.name, Retrieves: i.description.String(), Synced: true}
	i.mu.Lock()
	h.Running = i.session != nil
	i.mu.Unlock()
	var errs []error
	for _, p := range i.parts {
		p.mu.Lock()
		h.Synced = h.Synced && p.synced
		if p.lastEvent.After(h.LastEvent) {
			h.LastEvent = p.lastEvent
		}
		if p.err != nil {
			errs = append(errs, p.err)
			if h.ErrSince.IsZero() || p.errSince.Before(h.ErrSince) {
				h.ErrSince = p.errSince
			}
		}
		p.mu.Unlock()
		h.Objects += p.objects().Len()
	}
	h.Synced = h.Synced && h.Running
	h.Err = errors.Join(errs...)
	return h
}

// Ready is Health().Ready(): nil when the informer can be relied on.
func (i *Informer[T]) Ready() error { return i.Health().Ready() }

// Recorder receives an informer's measurements. metrics/prometheus has an adapter.
type Recorder interface {
	// ObserveInformer is called when an informer starts. The Recorder may call health
	// at any time, for instance when it is scraped, until stop is called. It must
	// accept several informers of the same name.
	ObserveInformer(name string, health func() Health) (stop func())
}
