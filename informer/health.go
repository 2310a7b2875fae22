package informer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// Health is the state of an informer at one time.
type Health struct {
	// Informer is the informer's name. Retrieves describes the objects that the informer lists and watches.
	Informer  string
	Retrieves string
	// Running is true while the informer runs.
	Running bool
	// Synced is true after the first list since the start of the informer.
	Synced bool
	// Optional is Config.Optional. Degraded is true while the informer is optional and the cluster does not serve the
	// kind, or forbids reading it, at least for one of combined Retrievers.
	Optional bool
	Degraded bool
	// ResourceVersion is the version up to which every watch of the informer has delivered all changes. It is empty
	// until the version is known.
	ResourceVersion string
	// Objects is the number of cached objects. Bytes is an estimate of the memory that they use: records, tables,
	// indexes, dictionaries. Received is the number of bytes that were read from the API server since New.
	Objects  int
	Bytes    int64
	Received int64
	// Decoded is the number of objects that were decoded for readers since New. DecodeTime is the total time spent on
	// that.
	Decoded    int64
	DecodeTime time.Duration
	// DecodedBytes is an estimate of the memory of the objects that are kept decoded (SetDecodedBudget).
	DecodedBytes int64
	// Staleness is the maximum age of the cached state while the informer runs, over all of its watches. With a healthy
	// watch it stays below about a minute, because the API server sends a bookmark at least that often. It is zero if
	// the informer does not run, or has not listed.
	Staleness time.Duration
	// Lag is the time until the informer showed the last write of this process that a controller waited for. It is zero
	// if the write was shown at once, or if there was none.
	Lag time.Duration
	// LastEvent is the time of the last list, event or bookmark. It is zero if there was none.
	LastEvent time.Time
	// Err is the reason why the informer cannot list or watch now, or nil.
	Err error
	// ErrSince is the time at which the informer began to fail with Err.
	ErrSince time.Time
}

// Ready returns nil if the informer is synced and its watch works, or if it is optional and degraded. Otherwise the
// error contains the informer's name and the reason.
func (h Health) Ready() error {
	switch {
	case !h.Running:
		return fmt.Errorf("informer %q of %s: not running", h.Informer, h.Retrieves)
	case h.Err != nil && !h.Degraded:
		return fmt.Errorf("informer %q: %w", h.Informer, h.Err)
	case !h.Synced && !h.Degraded:
		return fmt.Errorf("informer %q of %s: the first list is under way", h.Informer, h.Retrieves)
	}
	return nil
}

// Health returns the informer's state.
func (i *Informer[T]) Health() Health { return i.core.healthWithSizes() }

// healthWithSizes returns health() with the number and the size of the cached objects, which the store must compute.
func (c *core) healthWithSizes() Health {
	h := c.health()
	for _, p := range c.allParts() {
		h.Bytes += p.objects().Sizes().Bytes
	}
	return h
}

func (c *core) health() Health {
	c.mu.Lock()
	h := Health{
		Informer: c.name, Retrieves: c.selectionText, Optional: c.optional,
		Running: c.session != nil, Synced: true, Degraded: c.optional,
		Received: c.counters.received.Load(), Decoded: c.counters.decoded.Load(),
		DecodeTime: time.Duration(c.counters.decodeTime.Load()),
		Lag:        time.Duration(c.counters.lag.Load()),
	}
	all, parts := c.parts, c.presentParts()
	c.mu.Unlock()
	h.DecodedBytes = c.decodedUse.bytes.Load()
	h.Staleness = c.staleness()
	for _, p := range all {
		h.Objects += p.objects().Len()
	}
	degraded := false
	var errs []error
	for n, p := range parts {
		now, reached := p.status.condition(), p.progress.now()
		if n == 0 || apiobject.OlderVersion(reached.newest, h.ResourceVersion) || reached.newest == "" {
			h.ResourceVersion = reached.newest
		}
		h.Synced = h.Synced && now.synced
		degraded = degraded || now.degraded
		// The informer is not degraded if one part fails for another reason.
		h.Degraded = h.Degraded && (now.degraded || now.err == nil && now.synced)
		if reached.lastArrival.After(h.LastEvent) {
			h.LastEvent = reached.lastArrival
		}
		if now.err != nil {
			errs = append(errs, now.err)
			if h.ErrSince.IsZero() || now.errSince.Before(h.ErrSince) {
				h.ErrSince = now.errSince
			}
		}
	}
	if blocked := c.calling.blockedFor(time.Since(c.createdAt)); blocked > 0 && h.Running {
		errs = append(errs, fmt.Errorf("it takes no changes: a function that is called for each change (a predicate, "+
			"a mapper) has not returned for %s", blocked.Round(time.Second)))
		if since := time.Now().Add(-blocked); h.ErrSince.IsZero() || since.Before(h.ErrSince) {
			h.ErrSince = since
		}
	}
	h.Degraded = h.Degraded && degraded
	h.Synced = h.Synced && h.Running
	h.Err = errors.Join(errs...)
	return h
}

// presentParts returns the parts except those that SetRetriever has added and still waits for. mu must be held.
func (c *core) presentParts() []*part {
	if !slices.ContainsFunc(c.parts, func(p *part) bool { return p.isNew }) {
		return c.parts
	}
	return slices.DeleteFunc(slices.Clone(c.parts), func(p *part) bool { return p.isNew })
}

func (c *core) staleness() (most time.Duration) {
	c.mu.Lock()
	running, parts := c.session != nil, c.presentParts()
	c.mu.Unlock()
	if !running {
		return 0
	}
	for _, p := range parts {
		most = max(most, p.progress.staleness())
	}
	return most
}

// Ready returns Health().Ready().
func (i *Informer[T]) Ready() error { return i.core.health().Ready() }

// Recorder receives an informer's measurements. metrics/prometheus has an adapter.
type Recorder interface {
	// ObserveInformer is called when an informer starts. The Recorder may call health at any time, for instance when it
	// is scraped, until stop is called. It must accept several informers with the same name.
	ObserveInformer(name string, health func() Health) (stop func())
}
