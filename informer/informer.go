package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config configures an Informer.
type Config[T kube.Object] struct {
	// Name identifies the informer in logs, metrics and readiness. Default: the kind of the objects. Set it for
	// informers of one kind that select different objects.
	Name string
	// Retriever lists and watches the objects. Required.
	Retriever Retriever[T]
	// Optional lets controllers start and be ready while the cluster does not serve the kind, forbids reading it, or
	// answers 503, as for an aggregated API whose backend is down. Meanwhile the informer is degraded: Health and
	// Controller.Problems have the reason. It retries at least every 15 s, or after the Retry-After of the API server,
	// and announces the objects when it can list them. Until then the cache is empty, and reads return an error if the
	// answer was 503, because objects may exist.
	//
	// If the API server does not find the kind anymore, reads return an error, and the objects are kept. They are
	// removed when the discovery has contained no version of the kind for a minute (for a Retriever of the program:
	// when it has returned kube.ErrNotServed for a minute). Default false: the controller waits.
	Optional bool

	// KeepManagedFields keeps metadata.managedFields. Default false: they are removed, because they are often more than
	// half of an object and few handlers read them. An Update of an object without managedFields does not change them.
	KeepManagedFields bool
	// KeepAppliedBy is a field manager whose entry in metadata.managedFields is kept with each object. The entry
	// contains the fields that the manager has applied. With it, client.Apply detects that an object needs no apply,
	// also after a restart. Objects that are read do not contain the entry. It uses some memory for each object
	// (docs/cache.md). Default: no entry is kept.
	KeepAppliedBy string
	// Cut are further fields to remove, as paths such as "spec.template.spec.containers.env" (without list indexes) or
	// LastApplied. An object with such a cut must never be written by Update, which would delete the fields. Patch and
	// apply are safe. Default: none.
	Cut []string
	// Transform changes each object before it is cached, for what Cut cannot do, such as shortening a value. It is
	// called once for each state that arrives in a list or a watch. The informer decodes the state for the call, and
	// encodes it again: with a Transform every event costs more CPU time than a read. Prefer Cut.
	//
	// Reads, changes, predicates, indexes and all views then have the changed objects. A client.Client never reads from
	// the informer. As with Cut, such an object must never be written by Update, and a controller may run a key once
	// more after a write of its own to the object.
	//
	// Transform must not change the name, namespace, UID, resourceVersion, generation or deletionTimestamp. It must
	// return the same object for the same state, be fast, not read the informer, and be safe for concurrent use,
	// because combined Retrievers call it at the same time. If it returns an error, panics, or changes such a field, or
	// if the object cannot be decoded, then that object is cached without content: reads of this object return the
	// error, so a controller retries its key, and other objects are not affected.
	//
	// Cut is applied before and after it. It cannot be combined with KeepAppliedBy. Default nil: objects are not
	// changed.
	Transform func(obj T) error
	// Indexes are additional indexes for queries. Namespaces, owners and labels are always indexed. Informer.AddIndex
	// adds more. Default: none.
	Indexes []Index[T]

	// Metrics receives measurements. Default: that of the Cluster of the Retriever (see metrics/prometheus), or none.
	Metrics Recorder
	// OnError is called for each list or watch that fails, also if it fails for the same reason again, which the log
	// does not repeat. The error names the operation and wraps that of the API server. The informer waits for the call
	// and then retries, so it must be fast; combined Retrievers call it at the same time. It may read the informer, but
	// must not wait for the end of Run or for SetRetriever, which wait for the call. A panic is logged. Health and
	// Metrics have the present error. Default nil: errors are only logged.
	OnError func(error)
	// Logger receives warnings when the informer fails to list or watch, a line when it recovers, and the messages of
	// client-go's Reflector at debug level. Default: that of the Cluster, or slog.Default().
	Logger *slog.Logger
}

// Informer is a cache of the objects that one Retriever lists and watches. It may be shared: several goroutines may run
// it and read from it at the same time.
//
// Run lists the objects into a store and then watches. client-go's Reflector decides when to list and when to watch. If
// an arriving object is newer than the cached one, the store keeps its bytes, and then subscribers receive a Change.
//
// Guarantees:
//
//   - When a subscriber receives a change, Get returns that state or a later one. If combined Retrievers overlap, Get
//     returns the state of the first one that has the object.
//   - For each object the cache only moves forward: an older resourceVersion never replaces a newer one of the same
//     object. The exception is an API server whose versions went back (etcd was restored from a backup): its consistent
//     list replaces the cached states.
//   - A reconnect or a relist alone announces nothing: subscribers receive only real changes.
//   - Until the informer is synced, and during a relist, the cache contains the objects that have arrived so far, each
//     in a state that was current at some time. Before the first list of a Retriever has ended, reads of what it may
//     still list return an error.
//   - Combined Retrievers, such as several namespaces, fail separately. If one of them is forbidden, or its kind is
//     missing, from the start, nothing waits for it once another one has listed, and Health and Ready have its error.
//     When it is permitted, its objects are announced.
//   - Health, Ready and the log report a failing list or watch at once. The informer retries it without limit, with a
//     backoff of up to about 15 s, or after the Retry-After of the API server, up to 10 min and half as much again.
//     They report a request without a response after 90 s, and the informer repeats it after 5 min.
//   - A watch that is open but delivers nothing, while a list shows changes, is reported and replaced.
//   - Every object that is read is a new copy, which belongs to the reader, except for reads of WithoutCopies.
type Informer[T kube.Object] struct {
	handle
	// Immutable after New.
	core    *core
	decoder wire.Decoder[T]
	decoded *decoded     // nil: none are kept
	shared  bool         // reads return the objects that are kept decoded, and no copies
	object  reflect.Type // of the objects that decoder returns
	cut     *wire.Cut    // for Retrievers that are set later
	// namespaces are those that it selects; nil: not known.
	namespaces []string
	metadata   func() cache.Reader // made by the first call
}

// New returns an Informer. It starts nothing. Fields of config that are zero have the value of SetDefaults, or else
// their default. The error contains all mistakes in config.
func New[T kube.Object](config Config[T]) (*Informer[T], error) {
	i, err := build(config.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("new informer %q: %w", config.Name, err)
	}
	i.core.appliedBy = config.KeepAppliedBy
	for _, r := range partsOf(config.Retriever) {
		description := r.Describe()
		apiobject.ObserversOf(description.cluster).SetCreated()
		i.namespaces = append(i.namespaces, description.namespaces()...)
		apiobject.ObserversOf(description.cluster).Require(apiobject.Permission{
			Kind: description.GroupVersionKind, Verbs: []string{"list", "watch"}, Namespaces: description.namespaces(),
		})
	}
	return i, nil
}

func build[T kube.Object](config Config[T]) (*Informer[T], error) {
	if config.Retriever == nil {
		return nil, errors.New("Retriever is required: informer.Retrieve makes one")
	}
	if err := checkObjectType[T](); err != nil {
		return nil, err
	}
	description := config.Retriever.Describe()
	cut, cutErr := config.cut()
	decoder, decoderErr := wire.NewDecoder[T](description.GroupVersionKind)
	var mistakes usercode.Mistakes
	mistakes.Join(description.Problem, cutErr, decoderErr)
	if config.Transform != nil && config.KeepAppliedBy != "" {
		mistakes.Addf("KeepAppliedBy cannot be combined with Transform: client.Apply would compare with a " +
			"changed object")
	}
	for n, index := range config.Indexes {
		if index.Name == "" || index.Values == nil {
			mistakes.Addf("Indexes[%d] (%q): Name and Values are required", n, index.Name)
		}
		if slices.ContainsFunc(config.Indexes[:n], func(other Index[T]) bool { return other.Name == index.Name }) {
			mistakes.Addf("Indexes[%d] (%q): another has the same Name", n, index.Name)
		}
	}
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	c := config.newCore(description)
	c.states.kind, c.states.comparer = c.kind, wire.NewComparer(c.objectType)
	c.guard = usercode.NewGuard(c.logger.With("informer", c.name))
	indexes := make([]store.Index, 0, len(config.Indexes))
	for _, index := range config.Indexes {
		indexes = append(indexes, index.inStore(decoder, c.guard))
	}
	c.indexes.Store(&indexes)
	i := newInformer(c, decoder, cut)
	if config.Transform != nil {
		c.transform = newTransform(i, config.Transform)
	}
	for _, r := range partsOf(config.Retriever) {
		c.parts = append(c.parts, i.newPart(r))
	}
	return i, nil
}

// newCore returns a core without indexes and parts.
func (c Config[T]) newCore(description Description[T]) *core {
	made := &core{
		createdAt:     time.Now(),
		name:          cmp.Or(c.Name, description.kind()),
		kind:          description.GroupVersionKind,
		cluster:       clusterOf(c.Retriever),
		objectType:    reflect.TypeFor[T](),
		selectionText: description.text(),
		optional:      c.Optional,
		whole:         len(c.Cut) == 0 && c.Transform == nil,
		decodedUse:    new(decodedUse),
		cutsLabels:    slices.ContainsFunc(c.Cut, isOfLabels),
		keepsApplied:  c.KeepAppliedBy != "",
		metrics:       c.Metrics,
		onError:       c.OnError,
		synced:        make(chan struct{}),
		switching:     make(chan struct{}, 1),
	}
	made.decoded, made.logger = decodedOf(made.cluster), cmp.Or(c.Logger, made.cluster.Logger())
	if usercode.IsNil(made.metrics) {
		made.metrics = apiobject.Metrics[Recorder](apiobject.ObserversOf(made.cluster))
	}
	return made
}

// isOfLabels reports whether a path of Config.Cut is that of labels.
func isOfLabels(path string) bool { return strings.HasPrefix(path, "metadata.labels") }

// checkObjectType returns an error if objects cannot be decoded as a T.
func checkObjectType[T kube.Object]() error {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		return nil
	}
	return fmt.Errorf("objects cannot be decoded as %s: the type parameter must be a pointer to a struct, "+
		"such as *corev1.Pod, *unstructured.Unstructured or *metav1.PartialObjectMetadata", t)
}

func (c Config[T]) cut() (*wire.Cut, error) {
	paths := c.Cut
	if !c.KeepManagedFields {
		paths = append([]string{wire.ManagedFields}, paths...)
	}
	cut, err := wire.NewCutExceptApplied(reflect.TypeFor[T](), c.KeepAppliedBy, paths...)
	if err != nil {
		return nil, fmt.Errorf("the paths of Cut: %w", err)
	}
	return cut, nil
}

func (i *Informer[T]) newPart(r Retriever[T]) *part {
	description := r.Describe()
	p := &part{
		core: i.core, describes: description.text(), server: description.server,
		watchList: description.WatchList, identity: r,
	}
	if direct, ok := r.(*clusterRetriever[T]); ok {
		p.feed = direct.feed(i.cut, &i.core.counters.received)
		p.selects, p.isRemoved, p.exists = direct.selects(), direct.isRemoved, direct.exists
		if p.selects.selective() {
			p.contents.ending = cache.GoneOrLeft
		}
		if len(direct.limit) > 0 {
			p.rescope = i.rescope
		}
	} else {
		p.feed = objectFeed[T]{retriever: r, encoder: wire.NewEncoder[T](i.cut), guard: i.core.guard}
	}
	if i.core.transform != nil {
		p.feed = transformedFeed{p.feed, i.core.transform}
	}
	p.connect()
	return p
}

// Name returns the informer's name.
func (i *Informer[T]) Name() string { return i.core.name }

// Kind returns the kind of the objects. It is empty if the Retriever does not specify it.
func (i *Informer[T]) Kind() schema.GroupVersionKind { return i.core.kind }

// Run lists and watches until ctx ends, and then returns nil.
//
// Several goroutines may run one Informer at the same time. The first Run starts the watch. The last one ends it, and
// waits for its goroutines. Reads then return ErrNotRunning; the next Run starts with an empty cache.
func (i *Informer[T]) Run(ctx context.Context) error {
	defer i.Join(ctx)()
	if i.WaitSynced(ctx) == nil {
		observers.Started(ctx, i, func() error { return nil })
	}
	<-ctx.Done()
	return nil
}

// Join starts the informer, or joins the running session, and returns at once. The caller must call leave exactly once.
// leave has the effect of the end of a Run. Join uses the values of ctx, but ignores its end.
//
// Subscriptions and WaitSynced calls between Join and leave apply to the joined session, whatever other users of the
// informer do.
func (i *Informer[T]) Join(ctx context.Context) (leave func()) {
	s := i.core.join(ctx)
	return func() { i.core.leave(s) }
}

// ErrNotRunning is in the error of a read from an informer that does not run, because its cache is empty or stale. Run
// the informer, or add it to Config.Reads of the controller that reads it.
var ErrNotRunning = errors.New("the informer does not run: call Run, or add it to Config.Reads of the controller " +
	"that reads from it")

// Get returns a new copy of the object under key, which belongs to the caller.
//
// Reads never block. Call WaitSynced to wait for all objects. Controllers call it before they call a handler.
//
// Errors: ErrNotRunning; an object that is not cached, while the first list of the Retriever that may have it has not
// ended, or is forbidden; an optional kind that the API server does not find, but which may still have objects; an
// object that cannot be decoded as a T.
func (i *Informer[T]) Get(key kube.Key) (obj T, found bool, err error) {
	parts, gaps, err := i.core.readable()
	missing, hidden := gaps.of(key)
	if err = cmp.Or(err, hidden); err != nil {
		return obj, false, err
	}
	for _, p := range parts {
		if ref, found := p.objects().Get(key); found {
			obj, err = i.read(ref)
			return obj, err == nil, err
		}
	}
	return obj, false, missing
}

// has reports whether the cache contains an object under key. Errors: those of Get.
func (i *Informer[T]) has(key kube.Key) (bool, error) {
	parts, gaps, err := i.core.readable()
	missing, hidden := gaps.of(key)
	if err = cmp.Or(err, hidden); err != nil {
		return false, err
	}
	if i.core.keptBy(parts, key) {
		return true, nil
	}
	return false, missing
}

// List iterates over new copies of the objects that query selects, in no particular order. Each object is decoded or
// copied when it is yielded, so an early end avoids the rest of the work. List holds no lock during the iteration:
// objects that are added or deleted during that time may or may not be yielded.
//
// It yields an error in place of an object that cannot be decoded as a T. It yields a single error if query has an
// unknown index, if the informer does not run (ErrNotRunning), or if objects that query may select have not been listed
// (see Get).
func (i *Informer[T]) List(query Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		i.live().List(query)(yield)
	}
}

// Count returns the number of objects that query selects, without decoding them. Errors: those of List, except for
// objects that cannot be decoded.
func (i *Informer[T]) Count(query Query) (int, error) {
	return i.live().Count(query)
}

// Len returns the number of cached objects. If the informer does not run, Len returns the last number.
func (i *Informer[T]) Len() int {
	n := 0
	for _, p := range i.core.allParts() {
		n += p.objects().Len()
	}
	return n
}

// Walk iterates over one of shares equal parts of the objects, each as a Change of type Listed, which is valid until
// the next iteration. An object that stays in the cache is always in the same share. share counts from 0.
//
// Use it to process all objects over a longer time.
func (i *Informer[T]) Walk(share, shares int) iter.Seq[Change] {
	return i.core.walk(&states{kind: i.core.kind}, i.core.allParts(), share, shares)
}

// WaitSynced waits until the first list since the start of the informer has ended: that of each combined Retriever, but
// not of one that is forbidden or whose kind is missing, if another one has listed. If ctx ends first, the error
// contains ctx's error and the reason why the informer is not synced.
func (i *Informer[T]) WaitSynced(ctx context.Context) error { return i.core.waitSynced(ctx) }

// Subscribe calls notify for every later change, starting with a Listed for each cached object. Objects that were
// deleted while the informer did not run are not announced. Each session starts with a Listed for each present object.
//
// Calls are sequential, and no object changes during a call. notify must return quickly. It may read the informer, but
// must not call Subscribe or unsubscribe. The Change is valid only during the call. A panic or runtime.Goexit in notify
// is logged. Package subscription delivers objects on channels.
func (i *Informer[T]) Subscribe(notify func(Change)) (unsubscribe func()) {
	guard := usercode.NewGuard(i.core.logger) // of its own: it logs the stack of the first failure
	return i.core.subscribe(func(c Change) {
		_ = guard.Call("a function that was passed to Subscribe", func() { notify(c) }, nil)
	})
}
