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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/gotype"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config says what an Informer keeps.
type Config[T kube.Object] struct {
	// Name is used in logs, metrics and readiness. Default: the kind that is retrieved, so
	// name informers of one kind that retrieve different objects of it.
	Name string
	// Retriever lists and watches the objects. Required.
	Retriever Retriever[T]
	// Optional lets controllers start and be ready while the cluster does not serve the
	// kind, or forbids reading it. The informer is degraded then (Health says why), asks
	// again at least every 15 s, and announces the objects once it gets them. Default false:
	// the controller waits.
	Optional bool

	// KeepManagedFields keeps metadata.managedFields. Default false: they are cut, as they
	// are often more than half of an object and few handlers read them. An Update of an
	// object without them leaves them as they are.
	KeepManagedFields bool
	// KeepAppliedBy is a field manager whose entry in metadata.managedFields, which contains the fields that it has
	// applied, is kept with each object. From it client.Apply detects that an object needs no apply, also after a
	// restart. Objects that are read do not contain the entry. It takes some memory for each object (docs/cache.md).
	// Default: none is kept.
	KeepAppliedBy string
	// Cut are further fields that are not kept, as paths such as
	// "spec.template.spec.containers.env" (lists need no index) or LastApplied. Never
	// Update an object with such a cut: the fields would be removed. Patch and apply are
	// safe. Default: none.
	Cut []string
	// Indexes are further ways to find objects. Namespaces, owners and labels need none.
	// Default: none.
	Indexes []Index[T]

	// Metrics receives measurements. Default nil: none.
	Metrics Recorder
	// Logger receives what an operator of the program should know: that the informer
	// cannot list or watch, and that it can again; and what client-go's Reflector says,
	// at debug level. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// Index finds objects by values that a function gives for each: by the node that a Pod is
// on, by a reference in the spec.
type Index[T kube.Object] struct {
	// Name is what a query names. Required.
	Name string
	// Values returns the values under which obj is found. It is called once for each state
	// of each object, when it arrives, which then has to be decoded: an index makes every
	// event cost as much as a handled one. It must be quick, and must not read the
	// informer. When it panics, the object is kept, and this index does not find it: an object may lack anything.
	// Required.
	Values func(obj T) []string
}

// Informer is a view of what one Retriever has seen: cached, always moving forward,
// shared by whoever is given it.
//
// Flow: Run lists the objects into a store and watches from there (client-go's
// Reflector decides when: WatchList where the server has it, bookmarks, 410, back-off).
// Each arriving object is compared with the kept one, by the little of it that package
// wire reads from its bytes; when it is newer, the store gets the bytes, and then the
// subscribers get the Change. An object is decoded when somebody reads it.
//
// Guarantees:
//   - When a subscriber learns of a change, Get returns that state or a later one. (Where
//     joined Retrievers overlap, Get returns the state of the first that has the object.)
//   - Per object, the view moves forward only: an older resourceVersion never replaces
//     a newer one of the same object. The one exception is an API server whose history
//     itself went back (etcd restored from a backup): its consistent list is believed.
//   - A reconnect or a relist alone changes nothing: subscribers learn of real changes.
//   - Until it is synced, and while it lists anew, the view holds the objects that have
//     come so far, each in a state that was current at some moment.
//   - What cannot be listed or watched is named by Health, Ready and the log at once,
//     and tried again for ever, with back-off up to about 15 s, whatever a Retry-After says. A
//     request that brings nothing is named after 90 s, and made again after 5 min.
//   - A watch that is open but brings nothing, while a list shows that there is something to
//     bring, is named (ErrSilentWatch) and replaced.
//   - Every object that is read is freshly decoded, and belongs to the reader.
//
// An Informer may be shared: Run may be called by several at the same time.
type Informer[T kube.Object] struct {
	// Immutable after New.
	core    *core
	decoder wire.Decoder[T]
	cut     *wire.Cut // for Retrievers that are set later
}

// New makes an Informer. It starts nothing. The error names every mistake in config.
func New[T kube.Object](config Config[T]) (*Informer[T], error) {
	if config.Retriever == nil {
		return nil, fmt.Errorf("new informer %q: Retriever is required: informer.Retrieve makes one", config.Name)
	}
	if err := checkObjectType[T](); err != nil {
		return nil, fmt.Errorf("new informer %q: %w", config.Name, err)
	}
	description := config.Retriever.Describe()
	errs := []error{description.Problem}
	cut, err := config.cut()
	errs = append(errs, err)
	decoder, err := wire.NewDecoder[T](description.GroupVersionKind)
	errs = append(errs, err)
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for n, index := range config.Indexes {
		if index.Name == "" || index.Values == nil {
			mistake("Indexes[%d] (%q): Name and Values are required", n, index.Name)
		}
		if slices.ContainsFunc(config.Indexes[:n], func(other Index[T]) bool { return other.Name == index.Name }) {
			mistake("Indexes[%d] (%q): another has the same Name", n, index.Name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new informer %q: %w", config.Name, err)
	}
	c := &core{
		made:      time.Now(),
		name:      cmp.Or(config.Name, description.kind()),
		kind:      description.GroupVersionKind,
		keeps:     reflect.TypeFor[T](),
		retrieves: description.String(),
		optional:  config.Optional,
		whole:     len(config.Cut) == 0,
		metrics:   config.Metrics,
		logger:    cmp.Or(config.Logger, slog.Default()),
		synced:    make(chan struct{}),
		switching: make(chan struct{}, 1),
	}
	c.states.kind, c.states.comparer = c.kind, wire.NewComparer(c.keeps)
	c.guard = usercode.NewGuard(c.logger.With("informer", c.name))
	indexes := storeIndexes(config.Indexes, decoder, c.guard)
	c.newStore = func() *store.Store { return store.New(store.Config{Indexes: indexes}) }
	i := &Informer[T]{core: c, decoder: decoder, cut: cut}
	for _, r := range partsOf(config.Retriever) {
		c.parts = append(c.parts, i.newPart(r))
	}
	return i, nil
}

// checkObjectType returns an error unless objects can be decoded as a T.
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

// storeIndexes makes functions over bytes of functions over objects.
func storeIndexes[T kube.Object](indexes []Index[T], decoder wire.Decoder[T], guard *usercode.Guard) []store.Index {
	var over []store.Index
	for _, index := range indexes {
		over = append(over, store.Index{Name: index.Name, Values: func(o *wire.Object) ([]string, error) {
			obj, err := decoder.Decode(o)
			if err != nil {
				return nil, err
			}
			var values []string
			if panicked := guard.Call("Values of index "+index.Name, func() { values = index.Values(obj) }, nil); panicked != nil {
				return nil, panicked
			}
			return values, nil
		}})
	}
	return over
}

func (i *Informer[T]) newPart(r Retriever[T]) *part {
	description := r.Describe()
	p := &part{core: i.core, describes: description.String(), watchList: description.WatchList, identity: r, kept: i.core.newStore()}
	if direct, ok := r.(*clusterRetriever[T]); ok {
		p.feed = direct.feed(i.cut, &i.core.counters.received)
		p.selects = direct.selects()
	} else {
		p.feed = objectFeed[T]{retriever: r, encoder: wire.NewEncoder[T](i.cut), guard: i.core.guard}
	}
	return p
}

// As returns a view of an informer through another type: its objects as unstructured, as
// metadata only, or as a Go type. Both are one informer: one list, one watch, one store,
// one set of subscribers; running either runs both.
//
// Errors: an informer of metadata has nothing else to show; and one Go type cannot be read
// as another.
func As[U, T kube.Object](i *Informer[T]) (*Informer[U], error) {
	fail := func(reason string) (*Informer[U], error) {
		var from T
		var to U
		return nil, fmt.Errorf("view informer %q of %T as %T: %s", i.Name(), from, to, reason)
	}
	from, to := reflect.TypeFor[T](), reflect.TypeFor[U]()
	metadataOnly, dynamic := reflect.TypeFor[*metav1.PartialObjectMetadata](), reflect.TypeFor[*unstructured.Unstructured]()
	if from == metadataOnly && to != metadataOnly {
		return fail("it keeps nothing but metadata")
	}
	if from != to && from != dynamic && to != metadataOnly && to != dynamic {
		return fail("view it as *unstructured.Unstructured or *metav1.PartialObjectMetadata, or retrieve unstructured objects")
	}
	decoder, err := wire.NewDecoderVia[U](i.core.kind, func() kube.Object { return gotype.New[T]() })
	if err != nil {
		return fail(err.Error())
	}
	return &Informer[U]{core: i.core, decoder: decoder, cut: i.cut}, nil
}

// Name returns the informer's name.
func (i *Informer[T]) Name() string { return i.core.name }

// Kind returns the kind of the informer's objects. It is empty when the Retriever does not
// tell it.
func (i *Informer[T]) Kind() schema.GroupVersionKind { return i.core.kind }

// Run lists and watches until ctx ends, and then returns nil.
//
// Several may run one Informer at the same time: the first Run starts the watch, the
// last one to end stops it, and returns after every goroutine of it has ended. Reads return
// ErrNotRunning from then on. The next Run begins with an empty view.
func (i *Informer[T]) Run(ctx context.Context) error {
	leave := i.Join(ctx)
	<-ctx.Done()
	leave()
	return nil
}

// Join is Run in two halves: it starts the watch, or joins the one that runs, and returns
// at once. The caller must call leave once, which does what the end of Run's context
// does. ctx lends its values; its end means nothing.
//
// Whoever subscribes or waits for the sync after Join does so in the session that it has
// joined, whatever the informer's other users do.
func (i *Informer[T]) Join(ctx context.Context) (leave func()) {
	s := i.core.join(ctx)
	return func() { i.core.leave(s) }
}

// ErrNotRunning is in the error of a read from an informer that nobody runs: what it keeps is
// empty, or older every minute. Run it, or name it in Config.Reads of the controller that reads it.
var ErrNotRunning = errors.New("nobody runs the informer: call Run, or name it in Reads of the controller that reads from it")

// Get returns a fresh copy of the object under key, which belongs to the caller.
//
// No read waits. Before the first list has ended, reads return the objects that have come so
// far: WaitSynced waits for all of them, and controllers call no handler before that.
//
// Errors: ErrNotRunning, and an object that cannot be read as a T.
func (i *Informer[T]) Get(key kube.Key) (obj T, found bool, err error) {
	parts, err := i.core.readable()
	if err != nil {
		return obj, false, err
	}
	for _, p := range parts {
		if ref, found := p.objects().Get(key); found {
			obj, err = i.read(ref)
			return obj, err == nil, err
		}
	}
	return obj, false, nil
}

// decode decodes an object of this informer.
func (i *Informer[T]) decode(o *wire.Object) (T, error) {
	began := time.Now()
	defer i.core.counters.observeDecode(began)
	obj, err := i.decoder.Decode(o)
	if err != nil {
		return obj, fmt.Errorf("informer %q: decode %s: %w", i.core.name, o.Key, err)
	}
	return obj, nil
}

// Has reports whether the informer keeps an object under key, without reading it. While nobody runs
// the informer, it says what was kept last; Get returns an error then.
func (i *Informer[T]) Has(key kube.Key) bool { return i.core.keptBy(i.core.allParts(), key) }

// All iterates over fresh copies of all objects, in no order. See List.
func (i *Informer[T]) All() iter.Seq2[T, error] { return i.List(Query{}) }

// List iterates over fresh copies of the objects that a query selects, in no order. Each
// is decoded when its turn comes, so an early end costs nothing more; nothing is locked
// meanwhile. Objects that come or go during the iteration may or may not be in it.
//
// An error stands in place of an object that cannot be read as a T, or of everything when
// the query names an index that there is not, or when nobody runs the informer (ErrNotRunning).
func (i *Informer[T]) List(query Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		parts, err := i.core.readable()
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, p := range parts {
			if !yieldAll(i, p.objects().List(query.inStore()), yield) {
				return
			}
		}
	}
}

// Count is the number of objects that a query selects. It decodes none. Errors: ErrNotRunning, and
// a query of an index that the informer does not have.
func (i *Informer[T]) Count(query Query) (int, error) {
	parts, err := i.core.readable()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range parts {
		count, err := p.objects().Count(query.inStore())
		if err != nil {
			return 0, fmt.Errorf("informer %q: count: %w", i.core.name, err)
		}
		n += count
	}
	return n, nil
}

// Len is the number of objects kept; while nobody runs the informer, the number that was kept last.
func (i *Informer[T]) Len() int {
	n := 0
	for _, p := range i.core.allParts() {
		n += p.objects().Len()
	}
	return n
}

// Listed iterates over one of a number of shares of the objects, each as a Change of type
// Listed, which is valid until the next. Every object that is kept throughout is in exactly
// one share, and stays there. share counts from 0.
//
// It is for code that has to come to every object, but not at once.
func (i *Informer[T]) Listed(share, shares int) iter.Seq[Change] {
	return i.core.listed(&states{kind: i.core.kind}, i.core.allParts(), share, shares)
}

// WaitSynced waits until everything has been listed once since the informer was
// started. It returns ctx's error when that ends first, together with what stands in
// the way.
func (i *Informer[T]) WaitSynced(ctx context.Context) error { return i.core.waitSynced(ctx) }

// Subscribe calls notify for every change from now on, beginning with a Listed for each
// object that is kept already. What vanished while nobody ran the informer is not
// announced: each session begins with Listed for what there is.
//
// Calls come one at a time, and no object changes meanwhile. notify must return quickly
// and must not call Subscribe or unsubscribe; it may read the informer. The Change is valid
// during the call. A panic in notify ends the process. It belongs to code that puts keys into
// queues.
func (i *Informer[T]) Subscribe(notify func(Change)) (unsubscribe func()) {
	return i.core.subscribe(notify)
}
