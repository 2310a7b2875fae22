package informer

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// SetDecodedBudget sets how many bytes of memory the informers of a Cluster together may use for decoded objects.
// Default: 16 MiB; 0 keeps none. Objects that are read three times, at most a minute apart, are kept decoded; after a
// change it may take a fourth read. If there is no room, and the reads were not all within a quarter of a second, they
// replace objects that have not been read for several times as long; one of 16 reads also replaces an object that is
// read as often. Reading a kept object costs a copy. Other reads decode, which costs several times as much for JSON,
// the form of all custom resources. Health.DecodedBytes is what an informer uses. Call it at any time.
//
// Not kept decoded are objects above a sixteenth of the budget, those of Retrievers of the program, and all objects of
// a Go type once its DeepCopyObject did not return a complete copy, of which a warning is logged. A read that finds
// that the process needs more than nine tenths of its memory limit (GOMEMLIMIT) evicts all.
//
// Errors: a negative number, a Cluster that kube.Connect has not made.
func SetDecodedBudget(cluster *kube.Cluster, bytes int64) error {
	if bytes < 0 {
		return errors.New("set the budget for decoded objects: it is negative")
	}
	shared := decodedOf(cluster)
	if shared == nil {
		return errors.New("set the budget for decoded objects: the Cluster was not made by kube.Connect")
	}
	shared.setBudget(bytes)
	return nil
}

// decodedOf returns what the informers of a cluster share; nil: the cluster is not known.
func decodedOf(cluster *kube.Cluster) (d *decoded) {
	apiobject.ObserversOf(cluster).Shared(func(shared map[any]any) {
		type key struct{}
		present, ok := shared[key{}].(*decoded)
		if !ok {
			present = newDecoded()
			shared[key{}] = present
		}
		d = present
	})
	return d
}

const (
	// defaultBudget has room for about 4,000 custom resources.
	defaultBudget = 16 << 20
	// maxShare is the part of the budget that an object may use.
	maxShare = 16
	// seenBytes is the part of the budget for which seen has a place.
	seenBytes = 1 << 10
	// entryBytes is an estimate of the memory of an entry beside its object and its state.
	entryBytes = 400
	// maxPassed is the number of objects, read lately, that the hand passes for each that an object replaces.
	maxPassed = 8
	// idleFactor: an object replaces another one if that has not been read for four times as long as the time between
	// its own last two reads. With 1, objects that are read in turn, and more than there is room for, would all be
	// replaced before their next read.
	idleFactor = 4
	// equalPart: one of 16 reads may replace an object that is read as often. Without it, such objects would never be
	// kept once the budget is full.
	equalPart = 16
)

// decoded keeps objects decoded that are read repeatedly. Several informers share it. It is safe for concurrent use.
//
// Once it is full, an object replaces those whose last read is much older than its own last but one, as in LIRS (Jiang
// and Zhang, 2002). A hand goes round the objects to find them, as in the clock algorithm.
type decoded struct {
	seed    maphash.Seed
	isShort func() bool // reports whether memory is short
	checks  bool        // reads find objects that a reader has changed
	fields  structFields

	short   atomic.Bool  // the last result of isShort
	checked atomic.Int64 // the second of that check

	mu      sync.RWMutex
	budget  int64                 // guarded by mu
	entries map[readKey]*entry    // guarded by mu
	clock   []*entry              // guarded by mu; the entries in any order
	hand    int                   // guarded by mu; the next entry of clock to look at
	size    int64                 // guarded by mu; of all entries
	seen    []atomic.Uint64       // guarded by mu; states that were read, see recordRead
	refused map[reflect.Type]bool // guarded by mu; types without complete copies
}

// readKey identifies an object in a store as one Go type.
type readKey struct {
	store  any // see store.Kept
	object reflect.Type
	key    kube.Key
}

// decodedUse is what an informer uses of the budget.
type decodedUse struct {
	bytes   atomic.Int64
	stopped bool // guarded by decoded.mu; no session runs
}

// entry is an object that is kept decoded.
type entry struct {
	readKey
	use   *decodedUse
	state store.Kept
	obj   kube.Object // readers that share it must not change it
	sum   uint64      // of obj, with decoded.checks
	size  int64
	place int           // in clock
	read  atomic.Uint32 // the ticks of the last read
}

// isIdle reports whether an object may replace the entry after a read of it.
func (e *entry) isIdle(r reading) bool {
	idle := r.now.since(ticks(e.read.Load()))
	return idle > 1+idleFactor*r.ago || r.equal && idle >= r.ago
}

func newDecoded() *decoded {
	d := &decoded{seed: maphash.MakeSeed(), isShort: isNearMemoryLimit, refused: map[reflect.Type]bool{}}
	// The flags of go test.
	d.checks = slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.") })
	d.setBudget(defaultBudget)
	return d
}

func (d *decoded) setBudget(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.evictIf(func(*entry) bool { return true })
	d.budget, d.seen = bytes, nil
	if bytes == 0 {
		d.seen = []atomic.Uint64{}
	}
}

// errChanged is returned instead of an object that a reader has changed.
var errChanged = errors.New("a reader of Informer.WithoutCopies has changed the object, which all readers share: " +
	"call DeepCopy before a change")

// find returns the object of a state, or nil, and this read, after which keep may keep the object. It returns a copy,
// unless shared is true.
func (d *decoded) find(k readKey, state store.Kept, shared bool) (obj kube.Object, r reading, err error) {
	now := time.Now()
	if d == nil || d.memoryIsShort(now) {
		return nil, reading{}, nil
	}
	d.mu.RLock()
	e, seen := d.entries[k], d.seen
	d.mu.RUnlock()
	switch {
	case e != nil && d.evictIfChanged(e):
		return nil, reading{}, errChanged
	case e != nil && e.state == state:
		if obj = e.readAt(ticksOf(now), shared); obj != nil {
			return obj, reading{}, nil
		}
	}
	return nil, d.record(seen, k, state, ticksOf(now), shared), nil
}

// readAt returns the object, or a copy. It returns nil if the Go type has made no copy.
func (e *entry) readAt(now ticks, shared bool) kube.Object {
	if e.read.Load() != uint32(now) { // stores invalidate the caches of other processors
		e.read.Store(uint32(now))
	}
	if shared {
		return e.obj
	}
	return copyOf(e.obj)
}

// record records the read of a state. With checks a shared object is kept at once, so that tests with few reads find
// changes.
func (d *decoded) record(seen []atomic.Uint64, k readKey, state store.Kept, now ticks, shared bool) reading {
	if seen == nil {
		seen = d.makeSeen()
	}
	if len(seen) == 0 { // the budget is 0
		return reading{}
	}
	hash := maphash.Comparable(d.seed, struct {
		readKey
		store.Kept
	}{k, state})
	r := recordRead(seen, hash, now)
	r.shared, r.again = shared, r.again || shared && d.checks
	return r
}

// evictIfChanged evicts an entry whose object a reader has changed, and reports whether that is so.
func (d *decoded) evictIfChanged(e *entry) bool {
	if !d.checks || d.sumOf(e.obj) == e.sum {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries[e.readKey] == e {
		d.evict(e)
	}
	return true
}

// sumOf returns a hash of an object in JSON, in which methods such as String of a resource.Quantity change nothing. It
// is 0 for an object that cannot be encoded, perhaps because another goroutine changes it.
func (d *decoded) sumOf(obj kube.Object) (sum uint64) {
	_ = usercode.Recover("MarshalJSON", func() {
		if encoded, err := json.Marshal(obj); err == nil {
			sum = maphash.Bytes(d.seed, encoded)
		}
	})
	return sum
}

// makeSeen makes seen, which programs without reads do not need.
func (d *decoded) makeSeen() []atomic.Uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		places := min(max(d.budget/seenBytes, 64), 1<<20)
		d.seen = make([]atomic.Uint64, 1<<bits.Len64(uint64(places-1))) //nolint:gosec // at least 64
	}
	return d.seen
}

// keep keeps a copy of obj, the decoded state, after a read of it, if there is room. It returns the object for the
// reader: obj, or the copy, if it shares the object. It logs a type without complete copies once.
func (d *decoded) keep(
	k readKey, r reading, use *decodedUse, state store.Kept, obj kube.Object, logger *slog.Logger,
) kube.Object {
	r.equal = rand.IntN(equalPart) == 0
	if !d.admits(k, state, r) {
		return obj
	}
	copied := copyOf(obj)
	size, complete := compareCopies(reflect.ValueOf(obj), reflect.ValueOf(copied), d.maxSize(), &d.fields)
	besides := int64(entryBytes + state.Size() + len(k.key.Namespace) + len(k.key.Name))
	e := &entry{readKey: k, use: use, state: state, obj: copied}
	if d.checks && complete {
		e.sum = d.sumOf(copied)
	}
	d.mu.Lock()
	before := d.entries[k]
	if before != nil {
		d.evict(before)
	}
	first := !complete && !d.refused[k.object]
	switch {
	case !complete:
		d.refused[k.object] = true
	case size > d.budget/maxShare || use.stopped:
	case d.makeRoom(size+besides, r):
		e.size = size + besides
		e.place = len(d.clock)
		e.read.Store(uint32(r.now))
		d.clock = append(d.clock, e)
		d.entries[k] = e
		d.size += e.size
		use.bytes.Add(e.size)
		if r.shared {
			obj = copied
		}
	}
	d.mu.Unlock()
	if first {
		logger.Warn("objects are decoded for each read: DeepCopyObject returns no complete copy", "type", k.object,
			"object", k.key, "hint", "generate it again with controller-gen")
	}
	return obj
}

// admits reports whether an object may be kept, before work is done for that. It may not replace another state of it
// that was read lately: readers of a snapshot and of the present state would evict each other's.
func (d *decoded) admits(k readKey, state store.Kept, r reading) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.short.Load() || d.refused[k.object] {
		return false
	}
	if e := d.entries[k]; e != nil {
		// Another goroutine may have kept the same state since.
		return e.state != state && e.read.Swap(0) == 0 // it was not read since the attempt before to replace it
	}
	if len(d.clock) == 0 || d.size < d.budget-d.budget/maxShare {
		return true // there is room for any object
	}
	d.hand++
	return r.spread && d.next().isIdle(r)
}

// maxSize returns the size of the largest object that is kept.
func (d *decoded) maxSize() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.budget / maxShare
}

// next returns the entry at the hand. There must be one. mu must be held.
func (d *decoded) next() *entry {
	if d.hand >= len(d.clock) {
		d.hand = 0
	}
	return d.clock[d.hand]
}

// makeRoom evicts objects that are idle until size fits into the budget. mu must be held.
func (d *decoded) makeRoom(size int64, r reading) bool {
	replaced := 1 + size*int64(len(d.clock))/max(d.size, 1) // about so many
	for passed := int64(0); d.size+size > d.budget; {
		if passed == replaced*maxPassed || len(d.clock) == 0 {
			return false
		}
		if e := d.next(); e.isIdle(r) {
			d.evict(e)
		} else {
			d.hand++
			passed++
		}
	}
	return true
}

// evict evicts an entry; the last one takes its place in clock. mu must be held.
func (d *decoded) evict(e *entry) {
	last := d.clock[len(d.clock)-1]
	last.place = e.place
	d.clock[last.place] = last
	d.clock[len(d.clock)-1] = nil
	d.clock = d.clock[:len(d.clock)-1]
	delete(d.entries, e.readKey)
	d.size -= e.size
	e.use.bytes.Add(-e.size)
}

// evictIf evicts the entries for which condition returns true. mu must be held.
func (d *decoded) evictIf(condition func(*entry) bool) {
	for _, e := range d.entries {
		if condition(e) {
			d.evict(e)
		}
	}
	if len(d.clock) == 0 {
		d.entries, d.clock = map[readKey]*entry{}, nil
	}
}

// setStopped records whether an informer runs. It evicts the objects of one that has stopped.
func (d *decoded) setStopped(use *decodedUse, stopped bool) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if use.stopped = stopped; stopped {
		d.evictIf(func(e *entry) bool { return e.use == use })
	}
}

// memoryIsShort compares the memory of the process with its limit, once a second, and evicts all if it is short.
func (d *decoded) memoryIsShort(now time.Time) bool {
	second := now.Unix()
	if checked := d.checked.Load(); second == checked || !d.checked.CompareAndSwap(checked, second) {
		return d.short.Load()
	}
	short := d.isShort()
	if d.short.Store(short); short {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.evictIf(func(*entry) bool { return true })
	}
	return short
}

// copyOf returns a copy of obj, or nil if the method of the Go type, which may be written by hand, makes none.
func copyOf(obj kube.Object) (copied kube.Object) {
	_ = usercode.Recover("DeepCopyObject", func() { copied, _ = obj.DeepCopyObject().(kube.Object) })
	if copied == nil || copied == obj || reflect.TypeOf(copied) != reflect.TypeOf(obj) || usercode.IsNil(copied) {
		return nil
	}
	return copied
}
