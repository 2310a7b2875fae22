package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// core is an informer without its type. All views of an informer share it.
type core struct {
	// Immutable after New.
	made     time.Time
	name     string
	kind     schema.GroupVersionKind // empty when the Retriever does not tell it
	keeps    reflect.Type            // of the objects that are retrieved: the T of New
	optional bool
	whole    bool // objects are kept as they are, but for managedFields
	metrics  Recorder
	logger   *slog.Logger
	guard    *usercode.Guard
	newStore func() *store.Store
	counters counters

	// events orders changes with subscriptions: it is held while a change is stored and
	// announced, and while a subscriber is added and told what is there.
	events      sync.Mutex
	subscribers []*subscriber // guarded by events; replaced, never changed
	states      states        // guarded by events
	calling     calling       // the subscriber that is being called

	mu        sync.Mutex
	retrieves string        // guarded by mu; what is listed and watched, for messages
	parts     []*part       // guarded by mu; replaced, never changed
	switching chan struct{} // has room for one; held by SetRetriever
	session   *session      // guarded by mu; nil when nobody runs the informer
	ending    *session      // guarded by mu; a session whose watches are ending
	synced    chan struct{} // guarded by mu; closed when the current session is synced
}

// counters are what is counted since the informer was made.
type counters struct {
	received   atomic.Int64 // bytes read from the API server
	decoded    atomic.Int64 // objects decoded for readers
	decodeTime atomic.Int64 // nanoseconds of that
	lag        atomic.Int64 // nanoseconds that the last write that was awaited took to be shown
}

type subscriber struct{ notify func(Change) }

// session is the time from the first Run to the return of the last.
type session struct {
	users  int                             // guarded by core.mu
	start  func(p *part, first ChangeType) // runs a part until the session, or the part, is ended
	cancel context.CancelFunc
	ended  chan struct{} // closed when all watches have ended
}

func (c *core) allParts() []*part {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts
}

// readable returns the parts to read from, or ErrNotRunning.
func (c *core) readable() ([]*part, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, fmt.Errorf("informer %q of %s: %w", c.name, c.retrieves, ErrNotRunning)
	}
	return c.parts, nil
}

func (c *core) leave(s *session) {
	c.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		c.session, c.ending = nil, s
		c.notSynced()
	}
	c.mu.Unlock()
	if !last {
		return
	}
	s.cancel()
	<-s.ended
	c.forgetEnding(s)
}

// forgetEnding lets the next session begin.
func (c *core) forgetEnding(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == s {
		c.ending = nil
	}
}

// notSynced makes callers of waitSynced wait for the next sync. mu must be held.
func (c *core) notSynced() {
	select {
	case <-c.synced:
		c.synced = make(chan struct{})
	default:
	}
}

// join returns the running session with one more user, or starts one.
func (c *core) join(ctx context.Context) *session {
	for {
		c.mu.Lock()
		if ending := c.ending; ending != nil {
			// Two sessions must not feed the same parts.
			c.mu.Unlock()
			<-ending.ended
			c.forgetEnding(ending)
			continue
		}
		if c.session == nil {
			c.session = c.begin(ctx)
		}
		s := c.session
		s.users++
		c.mu.Unlock()
		return s
	}
}

// begin begins a session. It holds mu.
func (c *core) begin(ctx context.Context) *session {
	// The session outlives the Run that started it when others have joined, and the handler whose
	// context that had.
	ctx, cancel := context.WithCancel(context.WithoutCancel(kube.Unobserved(ctx)))
	s := &session{cancel: cancel, ended: make(chan struct{})}
	// running counts the parts, and the session itself until it is cancelled, so that parts
	// may be added until then.
	var running sync.WaitGroup
	running.Go(func() { <-ctx.Done() }) // waited for by the goroutine below
	s.start = func(p *part, first ChangeType) {
		ctx, stop := context.WithCancel(ctx)
		p.begin(stop, first)
		ended := p.ended
		running.Go(func() { // waited for by the goroutine below, and by whoever drops the part
			defer close(ended)
			defer stop()
			p.run(ctx)
		})
	}
	for _, p := range c.parts {
		s.start(p, Listed)
	}
	go func() { // waited for by the last Run, through s.ended
		stopMetrics := c.observe()
		running.Wait()
		stopMetrics()
		c.releaseAll()
		close(s.ended)
	}()
	return s
}

// observe begins to report to the Recorder, whose panics are logged.
func (c *core) observe() (stop func()) {
	if c.metrics == nil {
		return func() {}
	}
	var end func()
	_ = c.guard.Call("ObserveInformer of Config.Metrics", func() { end = c.metrics.ObserveInformer(c.name, c.healthWithSizes) }, nil)
	if end == nil {
		return func() {}
	}
	return func() { _ = c.guard.Call("the end of ObserveInformer of Config.Metrics", end, nil) }
}

// waitSynced waits until every part has listed, or may do without.
func (c *core) waitSynced(ctx context.Context) error {
	c.mu.Lock()
	synced := c.synced
	c.mu.Unlock()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for informer %q: %w", c.name, ctx.Err()), c.health().Ready())
	}
}

func (c *core) subscribe(notify func(Change)) (unsubscribe func()) {
	s := &subscriber{notify: notify}
	c.events.Lock()
	defer c.events.Unlock()
	c.subscribers = append(slices.Clip(c.subscribers), s)
	c.mu.Lock()
	running, parts := c.session != nil, c.parts
	c.mu.Unlock()
	// What an ended session left is no news: the next one lists it again.
	if running {
		for change := range c.listed(&c.states, parts, 0, 1) {
			c.calling.begin(time.Since(c.made))
			notify(change)
		}
		c.calling.end()
		c.states.done()
	}
	return func() {
		c.events.Lock()
		defer c.events.Unlock()
		c.subscribers = slices.DeleteFunc(slices.Clone(c.subscribers), func(other *subscriber) bool { return other == s })
	}
}

// listed iterates over a share of what parts keep; see Informer.Listed. s is what the changes
// read their objects from.
func (c *core) listed(s *states, parts []*part, share, shares int) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for n, p := range parts {
			for ref := range p.objects().RefsIn(share, shares) {
				key := ref.Key()
				if c.keptBy(parts[:n], key) {
					continue
				}
				s.kept(ref)
				if !yield(Change{Type: Listed, Key: key, states: s}) {
					return
				}
			}
		}
	}
}

// announce delivers a change of the object that p has, or had, under key to the subscribers. events must be held, and
// states must be set.
//
// An object that another part has too was neither added nor deleted: it is Updated. If it arrives in the same state,
// nothing is announced.
func (c *core) announce(p *part, t ChangeType, key kube.Key) {
	defer c.states.done()
	if t != Updated {
		if other, found := c.keptBeside(p, key); found {
			if !c.states.mergeWithOtherPart(other, t) {
				return
			}
			t = Updated
		}
	}
	c.calling.begin(time.Since(c.made))
	for _, s := range c.subscribers {
		s.notify(Change{Type: t, Key: key, states: &c.states})
	}
	c.calling.end()
}

// keptBeside returns the state under key of a part other than p.
func (c *core) keptBeside(p *part, key kube.Key) (ref store.Ref, found bool) {
	for _, other := range c.allParts() {
		if other == p {
			continue
		}
		if ref, found = other.objects().Get(key); found {
			return ref, true
		}
	}
	return ref, false
}

func (c *core) keptBy(parts []*part, key kube.Key) bool {
	return slices.ContainsFunc(parts, func(p *part) bool {
		_, found := p.objects().Get(key)
		return found
	})
}

// settle is called by a part when its first list is in the store, or when it is degraded.
func (c *core) settle(p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.isSettled() {
		close(p.settled)
	}
	c.checkSynced()
}

// checkSynced closes synced when every part is settled. It holds mu.
func (c *core) checkSynced() {
	if c.session == nil {
		return // a list that came after the last Run had ended
	}
	for _, p := range c.parts {
		if !p.isNew && !p.isSettled() {
			return
		}
	}
	select {
	case <-c.synced:
	default:
		close(c.synced)
	}
}

// observeDecode counts the decoding of an object that began at a moment.
func (c *counters) observeDecode(began time.Time) {
	c.decoded.Add(1)
	c.decodeTime.Add(int64(time.Since(began)))
}
