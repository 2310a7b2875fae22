package controller

import (
	"sync"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/kube"
)

// passes contains the passes over all objects that are running or requested: the first pass, and one for each time that
// a source requests all objects (Trigger.All). At most one pass runs, and at most one waits: a pass that is requested
// before the waiting one has begun replaces it, and one that is requested during a pass follows it.
type passes struct {
	inProgress atomic.Bool // a pass is running or requested

	mu      sync.Mutex
	current *pass // guarded by mu; running, or the next to start
	next    *pass // guarded by mu; requested while current was running
}

// pass enqueues every object once, except objects that run for another reason after the pass was requested.
type pass struct {
	cause *Cause // nil for the first pass: its objects have CauseListed
	begun bool   // guarded by passes.mu
	// handled contains the keys that have run, or were enqueued for another reason, since the pass was requested;
	// guarded by passes.mu. For the first pass it contains only the latter: no key runs for the first time without
	// being enqueued by the pass or for another reason.
	handled map[kube.Key]struct{}
}

// request requests a pass for cause; nil means the first pass.
func (p *passes) request(cause *Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requested := &pass{cause: cause, handled: map[kube.Key]struct{}{}}
	if p.current != nil && p.current.begun {
		p.next = requested
	} else {
		p.current = requested
	}
	p.inProgress.Store(true)
}

// begin marks the current pass as begun and returns it, or returns nil if no pass is running or requested.
func (p *passes) begin() *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.begun = true
	}
	return p.current
}

// end ends the current pass.
func (p *passes) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.next = p.next, nil
	p.inProgress.Store(p.current != nil)
}

// active reports whether a pass is running or requested.
func (p *passes) active() bool { return p.inProgress.Load() }

// enqueued records a key that passes need not enqueue, because it will run. If that is not certain, only the first pass
// skips the key, because any run is enough for it.
func (p *passes) enqueued(key kube.Key, certain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pass := range [...]*pass{p.current, p.next} {
		if pass != nil && (certain || pass.cause == nil) {
			pass.handled[key] = struct{}{}
		}
	}
}

// runStarted records that a run has started. It must be called before the object is read.
func (p *passes) runStarted(key kube.Key) {
	if !p.active() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.cause != nil {
		p.current.handled[key] = struct{}{}
	}
	if p.next != nil {
		p.next.handled[key] = struct{}{}
	}
}

// needs reports whether a pass must enqueue key.
func (p *passes) needs(pass *pass, key kube.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, handled := pass.handled[key]
	return !handled
}
