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

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// core is an informer without its type parameter. All views of an informer share it.
type core struct {
	// Immutable after New.
	createdAt  time.Time
	name       string
	kind       schema.GroupVersionKind // empty if the Retriever does not specify it
	objectType reflect.Type            // the type of the retrieved objects: the T of New
	optional   bool
	whole      bool // objects are kept unchanged, except for managedFields
	cutsLabels bool // objects are kept without some of their labels
	// keepsApplied is true if objects are kept with what a field manager has applied.
	keepsApplied bool
	appliedBy    string // Config.KeepAppliedBy without defaults
	metrics      Recorder
	onError      func(error) // nil: no such function
	logger       *slog.Logger
	guard        *usercode.Guard
	cluster      *kube.Cluster                 // nil: not known
	indexes      atomic.Pointer[[]store.Index] // replaced by AddIndex, with adding and mu held
	adding       sync.Mutex                    // held by AddIndex; acquired before mu
	counters     counters
	decoded      *decoded // nil: no object is kept decoded
	decodedUse   *decodedUse
	// transform changes objects that arrive. Nil: they are not changed.
	transform func(*wire.Object) *wire.Object

	// events orders changes and subscriptions. It is held while a change is stored and announced, and while a
	// subscriber is added and receives the present objects.
	events      sync.Mutex
	subscribers []*subscriber // guarded by events; replaced, never changed
	states      states        // guarded by events
	calling     calling       // the current call of the subscribers

	mu            sync.Mutex
	selectionText string        // guarded by mu; what is listed and watched, for messages
	parts         []*part       // guarded by mu; replaced, never changed
	switching     chan struct{} // capacity 1; held by SetRetriever and rescope
	rescoping     bool          // guarded by mu; rescope is running
	session       *session      // guarded by mu; nil if the informer does not run
	ending        *session      // guarded by mu; a session whose watches are ending
	synced        chan struct{} // guarded by mu; closed when the current session is synced
	ran           bool          // guarded by mu; there was a session
	users         int           // guarded by mu; the calls of Shared that have returned the informer
	own           bool          // guarded by mu; later calls of Shared do not return it
}

// counters are measurements since the informer was made.
type counters struct {
	received   atomic.Int64 // bytes read from the API server
	decoded    atomic.Int64 // objects decoded for readers
	decodeTime atomic.Int64 // nanoseconds spent on decoding
	lag        atomic.Int64 // nanoseconds until the last awaited write was shown
}

type subscriber struct{ notify func(Change) }

// session is the time from the first Run to the return of the last Run.
type session struct {
	users  int                             // guarded by core.mu
	start  func(p *part, first ChangeType) // runs a part until the session or the part ends
	spawn  func(func(context.Context))     // runs a function, for which the end of the session waits
	cancel context.CancelFunc
	ended  chan struct{} // closed when all watches have ended
}

func (c *core) allParts() []*part {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts
}

// readable returns the parts to read from, and what they lack. The error of a read is ErrNotRunning.
func (c *core) readable() ([]*part, gaps, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, nil, fmt.Errorf("informer %q of %s: %w", c.name, c.selectionText, ErrNotRunning)
	}
	var lacking gaps
	for _, p := range c.parts {
		if of := p.status.lacking(); of != lacksNothing && !p.isNew {
			lacking = append(lacking, gap{p, of})
		}
	}
	return c.parts, lacking, nil
}

func (c *core) leave(s *session) {
	c.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		c.session, c.ending = nil, s
		if isClosed(c.synced) {
			c.synced = make(chan struct{}) // later callers of waitSynced wait for the next sync
		}
	}
	c.mu.Unlock()
	if !last {
		return
	}
	c.decoded.setStopped(c.decodedUse, true) // before the next session can begin
	s.cancel()
	<-s.ended
	c.forgetEnding(s)
}

// forgetEnding allows the next session to begin.
func (c *core) forgetEnding(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == s {
		c.ending = nil
	}
}

// join adds a user to the running session, or starts a session, and returns it.
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
			c.decoded.setStopped(c.decodedUse, false)
			c.session, c.ran = c.begin(ctx), true
		}
		s := c.session
		s.users++
		c.mu.Unlock()
		return s
	}
}

// begin begins a session. mu must be held.
func (c *core) begin(ctx context.Context) *session {
	// The session may outlive the Run that started it, if others have joined, and the handler that called that Run. So
	// it must not end with ctx, nor keep the handler's call observer.
	ctx, cancel := context.WithCancel(context.WithoutCancel(observers.Outside(ctx)))
	s := &session{cancel: cancel, ended: make(chan struct{})}
	// running counts the parts, and the session itself until it is cancelled, so that parts may be added until then.
	var running sync.WaitGroup
	running.Go(func() { <-ctx.Done() })       // waited for by the goroutine below
	s.spawn = func(f func(context.Context)) { // a part calls it, which running counts
		running.Go(func() { f(ctx) }) // waited for by the goroutine below
	}
	s.start = func(p *part, first ChangeType) {
		ctx, stop := context.WithCancel(ctx)
		p.begin(stop, first)
		ended := p.ended
		running.Go(func() { // waited for by the goroutine below, and by drop
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
		for _, p := range c.allParts() {
			p.contents.releaseWaiters() // the informer will not show more writes
		}
		close(s.ended)
	}()
	return s
}

// observe registers the informer with the Recorder. Panics of the Recorder are logged.
func (c *core) observe() (stop func()) {
	if c.metrics == nil {
		return func() {}
	}
	var end func()
	_ = c.guard.Call("ObserveInformer of Config.Metrics", func() {
		end = c.metrics.ObserveInformer(c.name, c.healthWithSizes)
	}, nil)
	if end == nil {
		return func() {}
	}
	return func() { _ = c.guard.Call("the end of ObserveInformer of Config.Metrics", end, nil) }
}

// waitSynced waits until every part is settled.
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
	// The objects of an ended session are not announced, because the next session lists them again.
	if running {
		for change := range c.walk(&c.states, parts, 0, 1) {
			c.calling.begin(time.Since(c.createdAt))
			notify(change)
		}
		c.calling.end()
		c.states.done()
	}
	return func() {
		c.events.Lock()
		defer c.events.Unlock()
		c.subscribers = slices.DeleteFunc(slices.Clone(c.subscribers), func(other *subscriber) bool {
			return other == s
		})
	}
}

// walk iterates over a share of the objects of parts; see Informer.Walk. The changes read their objects from s.
func (c *core) walk(s *states, parts []*part, share, shares int) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for n, p := range parts {
			for ref := range p.objects().RefsIn(share, shares) {
				key := ref.Key()
				if c.keptBy(parts[:n], key) {
					continue
				}
				s.kept(ref)
				if !yield(Change{Type: Listed, Key: key, changeStates: cache.Hold(s)}) {
					return
				}
			}
		}
	}
}

// announce delivers a change of the object under key to the subscribers. objects have or had the object. events must be
// held, and states must be set.
//
// If another part also has the object, the object was neither added nor deleted: the change is an Updated. If it
// arrives in the same state as in the other part, nothing is announced.
func (c *core) announce(objects *contents, t ChangeType, key kube.Key) {
	defer c.states.done()
	if t != Updated {
		if other, found := c.keptBeside(objects, key); found {
			if !c.states.mergeWithOtherPart(other, t) {
				return
			}
			t = Updated
		}
	}
	c.calling.begin(time.Since(c.createdAt))
	for _, s := range c.subscribers {
		s.notify(Change{Type: t, Key: key, changeStates: cache.Hold(&c.states)})
	}
	c.calling.end()
}

// keptBeside returns the state under key in another part than that of objects, which may be nil.
func (c *core) keptBeside(objects *contents, key kube.Key) (ref store.Ref, found bool) {
	for _, other := range c.allParts() {
		if &other.contents == objects {
			continue
		}
		if ref, found = other.objects().Get(key); found {
			return ref, true
		}
	}
	return ref, false
}

func (c *core) keptBy(parts []*part, key kube.Key) bool {
	return slices.ContainsFunc(parts, func(p *part) bool { return p.objects().Has(key) })
}

// settle settles the parts for which callers need not wait anymore: those that have listed, and those that are
// degraded, unless the informer is required and nothing that it retrieves can be read. It is called after the first
// list of a part is stored, and when a part fails.
func (c *core) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	readable := c.optional || slices.ContainsFunc(c.parts, func(p *part) bool {
		return !p.leaves && p.status.condition().synced
	})
	for _, p := range c.parts {
		now := p.status.condition()
		if p.settled != nil && !isClosed(p.settled) && (now.synced || readable && now.degraded) {
			close(p.settled)
		}
	}
	c.checkSynced()
}

// checkSynced closes synced if every part is settled. mu must be held.
func (c *core) checkSynced() {
	if c.session == nil {
		return // the list arrived after the last Run had ended
	}
	for _, p := range c.parts {
		if !p.isNew && !isClosed(p.settled) {
			return
		}
	}
	if !isClosed(c.synced) {
		close(c.synced)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
