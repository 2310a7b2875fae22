package controller

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// NoObject is the T of a controller without a primary kind: Config[NoObject]. Its keys are not those of objects of one
// kind, but what its Sources enqueue: the tenants of many Namespaces, the objects of several kinds, machines outside of
// the cluster. Its Reconciler is called with each key; KeyHandler makes one for keys of another type than kube.Key.
//
// The guarantees are those of Handler, with these differences:
//
//   - The first pass handles each key that the Sources enqueue while their informers list, once.
//   - Resyncs, and Trigger.All, run the keys that Sources list (PreparedSource.Keys). Keys of other sources, such as
//     source.Channel, run only when they are enqueued, and for the results of their runs.
//   - Any change that a source reports ends a backoff, unless only the status of an object has changed, because there
//     is no other change that could fix a failure. QueueConfig.EndBackoffIf changes this.
//   - After Terminal, a key runs when a source enqueues it.
//   - A timer (SetTimer) lives until it fires.
//   - A problem of a key is not an Event, because there is no object that the Event could be about.
//
// Config.Cluster has only the settings of the program. New returns an error if a field is set that concerns objects:
// Retriever, Informer, Handler, Predicate, Deleted, Events, Queue.Priority. No type implements NoObject.
type NoObject interface {
	kube.Object
	noObject()
}

// primary is what depends on whether a controller has a primary kind. New chooses it. When the controller runs, the
// rest depends on objects.
type primary[T kube.Object] struct {
	retrieve    func(*kube.Cluster) informer.Retriever[T] // the default of Config.Retriever; returns nil for none
	validate    func(Config[T], *usercode.Mistakes)       // the fields that concern objects, without defaults
	endsBackoff func(Cause) bool                          // the default of QueueConfig.EndBackoffIf
	parseKey    func(text string) (kube.Key, error)
}

func primaryOf[T kube.Object]() primary[T] {
	if reflect.TypeFor[T]() != reflect.TypeFor[NoObject]() {
		return primary[T]{informer.Retrieve[T], Config[T].validateObjects, endsBackoffByDefault, kube.ParseKey}
	}
	return primary[T]{
		retrieve: func(*kube.Cluster) informer.Retriever[T] { return nil },
		validate: Config[T].validateWithoutObject, endsBackoff: endsBackoffWithoutObject,
		parseKey: func(text string) (kube.Key, error) { return splitKey(text), nil }, // any text may be that of a key
	}
}

// defaultsOfAll returns the config of SetDefaults for all controllers.
func defaultsOfAll(set *apiobject.Observers) (all Config[NoObject], ok bool) {
	all, ok = set.Defaults(defaultsKey{reflect.TypeFor[NoObject]()}).(Config[NoObject])
	return all, ok
}

// ownObjects returns the informer, or without a primary kind the keys that sources list.
func (l *loop[T]) ownObjects() objects {
	if l.informer == nil {
		return newListedKeys(l.staleness)
	}
	return ownInformer[T]{l.informer}
}

// validateWithoutObject reports the mistakes in the config of a controller without a primary kind.
func (c Config[T]) validateWithoutObject(mistakes *usercode.Mistakes) {
	set := usercode.SetFields(c, "Retriever", "Informer", "Optional", "Handler", "Predicate", "Deleted",
		"Queue.Priority", "Events")
	mistakes.AddIf(len(set) > 0, "%s: a controller of NoObject has no objects of its own; set Reconciler and Sources, "+
		"whose triggers have a priority and whose predicates drop changes", strings.Join(set, ", "))
	mistakes.AddIf(c.Reconciler == nil, "Reconciler is required: it is called with the keys that Sources enqueue")
}

// endsBackoffWithoutObject is endsBackoffByDefault for a controller without a primary kind. Each change of a source is
// a change of what the key stands for.
func endsBackoffWithoutObject(cause Cause) bool {
	if cause.Source == SourceLoop {
		return cause.Type == CauseTimer
	}
	return cause.Type != CauseUpdated || cause.Object == (kube.Key{}) || cause.Changed.Has(meaningful)
}

// withOwn returns the controller's own informer, if it has one, and others.
func withOwn[T kube.Object](own *informer.Informer[T], reads []informer.Any) []informer.Any {
	var all []informer.Any
	if own != nil {
		all = append(all, own)
	}
	return append(all, reads...)
}

// keyShares is the number of shares of listedKeys. It is the number of shares of a pass, and at least that of a resync.
const keyShares = passShares

// listedKeys are the keys that the sources of a controller without a primary kind list. They take the place of its
// objects: resyncs and passes walk them.
//
// A key is added when a source that lists keys enqueues it, and removed by the first collection in which no source
// lists it. So a key that a source enqueues is in the set before it runs, whatever the timing of collections.
type listedKeys struct {
	cache.Holder[cache.Informer] // noInformer

	seed maphash.Seed

	mu         sync.Mutex
	collection uint32 // guarded by mu; number of the current or last collection
	// guarded by mu; the last collection that found the key, or during which it was added
	shares [keyShares]map[kube.Key]uint32
}

func newListedKeys(staleness func() time.Duration) *listedKeys {
	return &listedKeys{Holder: cache.Hold[cache.Informer](noInformer{staleness: staleness}), seed: maphash.MakeSeed()}
}

// listed implements objects: it adds a key.
func (k *listedKeys) listed(key kube.Key) {
	share := maphash.Comparable(k.seed, key) % keyShares
	k.mu.Lock()
	defer k.mu.Unlock()
	switch collection, known := k.shares[share][key]; {
	case known && collection == k.collection:
		return
	case k.shares[share] == nil:
		k.shares[share] = map[kube.Key]uint32{}
	}
	// The strings may be parts of longer ones, such as an encoded object. A map keeps the strings of the last
	// assignment.
	key = kube.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)}
	k.shares[share][key] = k.collection
}

// collect removes the keys that list does not call found with, and that are not added meanwhile. It returns them. If
// list fails, collect removes none.
func (k *listedKeys) collect(list func(found func(kube.Key)) error) (removed []kube.Key, err error) {
	k.mu.Lock()
	k.collection++
	k.mu.Unlock()
	if err := list(k.listed); err != nil {
		return nil, err
	}
	for i := range k.shares {
		k.mu.Lock()
		left := map[kube.Key]uint32{}
		for key, collection := range k.shares[i] {
			if collection == k.collection {
				left[key] = collection
			} else {
				removed = append(removed, key)
			}
		}
		if len(left) < len(k.shares[i]) {
			k.shares[i] = left // a copy, because maps do not shrink
		}
		k.mu.Unlock()
	}
	return removed, nil
}

// Has reports whether a source lists key.
func (k *listedKeys) Has(key kube.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, found := k.shares[maphash.Comparable(k.seed, key)%keyShares][key]
	return found
}

// Absent implements objects. Sources may enqueue any key.
func (k *listedKeys) Absent(kube.Key) bool { return false }

// Len returns the number of keys.
func (k *listedKeys) Len() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, share := range k.shares {
		n += len(share)
	}
	return n
}

// Walk iterates over one of shares equal parts of the keys, each as a change without states.
func (k *listedKeys) Walk(share, shares int) iter.Seq[informer.Change] {
	return func(yield func(informer.Change) bool) {
		c, err := informer.NewChange(informer.Listed, schema.GroupVersionKind{}, nil, nil)
		if err != nil {
			panic(err) // there is no state to encode
		}
		for ; share < keyShares; share += shares {
			for _, c.Key = range k.keysOf(share) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// keysOf returns the keys of a share.
func (k *listedKeys) keysOf(share int) []kube.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := make([]kube.Key, 0, len(k.shares[share]))
	for key := range k.shares[share] {
		keys = append(keys, key)
	}
	return keys
}

// Kind implements objects: there is no kind.
func (k *listedKeys) Kind() schema.GroupVersionKind { return schema.GroupVersionKind{} }

// noInformer takes the place of the informer of a controller without a primary kind. Only its own methods are called.
type noInformer struct {
	cache.Informer
	staleness func() time.Duration
}

func (n noInformer) Staleness() time.Duration { return n.staleness() }

func (n noInformer) Encoded(kube.Key) (*wire.Object, bool) { return nil, false }

// staleness returns the staleness of the stalest informer that the controller reads.
func (l *loop[T]) staleness() (stalest time.Duration) {
	for _, read := range withOwn(l.informer, append(l.sources.reads(), l.config.Reads...)) {
		stalest = max(stalest, cache.Of(read).Staleness())
	}
	return stalest
}

// collectKeys removes listedKeys that no source lists anymore, and what is kept of them, once in each resync interval
// until ctx ends. It does so without resyncs too, because sources may enqueue any number of keys.
func (l *loop[T]) collectKeys(ctx context.Context) {
	keys, ok := l.own.(*listedKeys)
	if !ok {
		return
	}
	interval := l.config.ResyncInterval
	if interval < 0 {
		interval = defaultResyncInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		removed, err := keys.collect(func(found func(kube.Key)) error { return l.sources.list(ctx, found) })
		if err != nil {
			if ctx.Err() == nil {
				l.logger.WarnContext(ctx, "source failed to list its keys, all keys are kept", "error", err)
			}
			continue
		}
		for _, key := range removed {
			l.successes.Forget(key)
		}
		for _, key := range l.failures.givenUp() {
			if !keys.Has(key) {
				l.failures.forget(key) // no resync will end them
			}
		}
		if l.interrupted != nil && !l.sources.unread() {
			l.interrupted.forgetMissing(func(key kube.Key) bool { return !keys.Has(key) })
		}
	}
}

// list calls found with each key that a source lists. An error means that keys may be missing.
func (s *sources) list(ctx context.Context, found func(kube.Key)) error {
	for _, r := range s.started() {
		if r.Keys == nil {
			continue
		}
		err := s.guard.Try("Keys of "+r.label, func() error {
			for key := range r.Keys {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				found(key)
			}
			return nil
		})
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return fmt.Errorf("%s: %w", r.label, err)
		}
	}
	return nil
}
