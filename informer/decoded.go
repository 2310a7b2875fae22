package informer

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime/metrics"
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
// Default: 16 MiB; 0 keeps none. Objects that are read twice within a minute are kept decoded, while there is room; if
// there is none, some of them replace others. Reading them again costs a copy. Other reads decode, which costs several
// times as much for JSON, the form of all custom resources. Health.DecodedBytes is what an informer uses. Call it at
// any time.
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
	// againWithin is the time in which an object must be read twice to be kept. It is shorter than the default interval
	// of resyncs, which read each object.
	againWithin = time.Minute
	// seenBytes is the part of the budget for which seen has a place.
	seenBytes = 1 << 10
	// seenPlaces is the number of places in which the read of a state may be recorded.
	seenPlaces = 4
	// entryBytes is an estimate of the memory of an entry beside its object and its state.
	entryBytes = 400
	// admitted: without room, one of so many objects may replace others, and one of so many reads may be recorded. So a
	// part of the objects stays if more are read in turn than there is room for.
	admitted = 16
	// maxPassed is the number of objects, read lately, that the hand passes for each that an object replaces.
	maxPassed = 8
)

// decoded keeps objects decoded that are read repeatedly. Several informers share it. It is safe for concurrent use.
//
// It evicts by the clock algorithm, an approximation of least recently used.
type decoded struct {
	seed    maphash.Seed
	isShort func() bool // reports whether memory is short
	checks  bool        // reads find objects that a reader has changed

	short   atomic.Bool  // the last result of isShort
	checked atomic.Int64 // the second of that check

	mu      sync.RWMutex
	budget  int64                 // guarded by mu
	entries map[readKey]*entry    // guarded by mu
	clock   []*entry              // guarded by mu; the entries in any order
	hand    int                   // guarded by mu; the next entry of clock to look at
	size    int64                 // guarded by mu; of all entries
	seen    []atomic.Uint64       // guarded by mu; states that were read: a half of the hash, and the second
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
	obj   kube.Object // never changed
	sum   uint64      // of obj, with decoded.checks
	size  int64
	place int         // in clock
	read  atomic.Bool // since the hand has passed
}

func newDecoded() *decoded {
	d := &decoded{seed: maphash.MakeSeed(), isShort: isNearMemoryLimit, refused: map[reflect.Type]bool{}}
	// The flags of go test.
	d.checks = slices.ContainsFunc(os.Args[1:], func(arg string) bool { return strings.HasPrefix(arg, "-test.") })
	d.setBudget(defaultBudget)
	return d
}

func (d *decoded) setBudget(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.evictIf(func(*entry) bool { return true })
	d.budget, d.seen = bytes, nil
}

// errChanged is returned instead of an object that a reader has changed.
var errChanged = errors.New("a reader of Informer.WithoutCopies has changed the object, which all readers share: " +
	"call DeepCopy before a change")

// find returns the object of a state, or nil, and whether it should be kept when it has been decoded. It returns a
// copy, unless shared is true. With checks a shared object is kept at once, so that tests with few reads find changes.
func (d *decoded) find(k readKey, state store.Kept, shared bool) (obj kube.Object, keep bool, err error) {
	if d == nil || d.memoryIsShort() {
		return nil, false, nil
	}
	d.mu.RLock()
	e, budget, seen := d.entries[k], d.budget, d.seen
	d.mu.RUnlock()
	if e != nil && d.checks && d.sumOf(e.obj) != e.sum {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.entries[k] == e {
			d.evict(e)
		}
		return nil, false, errChanged
	}
	switch {
	case budget == 0:
		return nil, false, nil
	case seen == nil:
		seen = d.makeSeen()
	case e != nil && e.state == state:
		if !e.read.Load() { // stores invalidate the caches of other processors
			e.read.Store(true)
		}
		if obj = e.obj; !shared {
			obj = copyOf(e.obj)
		}
		if obj != nil {
			return obj, false, nil
		}
	}
	again := seenAgain(seen, maphash.Comparable(d.seed, struct {
		readKey
		store.Kept
	}{k, state}))
	return nil, again || shared && d.checks, nil
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

// seenAgain records the read of a state with this hash. It reports whether the previous one was within againWithin. A
// hash has a few places, of which it takes the oldest, and seldom one whose read is recent: otherwise nothing would be
// seen again of more objects than there are places. A read that is not recorded costs one more decoding.
func seenAgain(seen []atomic.Uint64, hash uint64) bool {
	const upper = math.MaxUint64 &^ math.MaxUint32
	second := uint32(time.Now().Unix()) //nolint:gosec // differences of seconds are sufficient
	oldest, oldestAge := &seen[0], uint32(0)
	for n := range uint64(seenPlaces) {
		place := &seen[(hash+n)&uint64(len(seen)-1)]
		before := place.Load()
		age := second - uint32(before) //nolint:gosec // the lower half
		if before&upper == hash&upper {
			place.Store(hash&upper | uint64(second))
			return age < uint32(againWithin/time.Second)
		}
		if age >= oldestAge {
			oldest, oldestAge = place, age
		}
	}
	if oldestAge >= uint32(againWithin/time.Second) || rand.IntN(admitted) == 0 {
		oldest.Store(hash&upper | uint64(second))
	}
	return false
}

// keep keeps a copy of obj, the decoded state, if there is room. It returns the copy, or nil. It logs a type without
// complete copies once.
func (d *decoded) keep(
	k readKey, use *decodedUse, state store.Kept, obj kube.Object, logger *slog.Logger,
) (kept kube.Object) {
	if !d.admits(k) {
		return nil
	}
	copied := copyOf(obj)
	size, complete := compareCopies(reflect.ValueOf(obj), reflect.ValueOf(copied), d.maxSize())
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
	case d.makeRoom(size + besides):
		e.size = size + besides
		e.place = len(d.clock)
		e.read.Store(true)
		d.clock = append(d.clock, e)
		d.entries[k] = e
		d.size += e.size
		use.bytes.Add(e.size)
		kept = copied
	}
	d.mu.Unlock()
	if first {
		logger.Warn("objects are decoded for each read: DeepCopyObject returns no complete copy", "type", k.object,
			"object", k.key, "hint", "generate it again with controller-gen")
	}
	return kept
}

// admits reports whether an object may be kept, before work is done for that. It may not replace another state of it
// that was read lately: readers of a snapshot and of the present state would evict each other's.
func (d *decoded) admits(k readKey) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.short.Load() || d.refused[k.object] {
		return false
	}
	if e := d.entries[k]; e != nil {
		return !e.read.Swap(false)
	}
	return d.size < d.budget-d.budget/maxShare || rand.IntN(admitted) == 0
}

// maxSize returns the size of the largest object that is kept.
func (d *decoded) maxSize() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.budget / maxShare
}

// makeRoom evicts objects that were not read lately until size fits into the budget. mu must be held.
func (d *decoded) makeRoom(size int64) bool {
	replaced := 1 + size*int64(len(d.clock))/max(d.size, 1) // about so many
	for passed := int64(0); d.size+size > d.budget; {
		if passed == replaced*maxPassed || len(d.clock) == 0 {
			return false
		}
		if d.hand >= len(d.clock) {
			d.hand = 0
		}
		if e := d.clock[d.hand]; e.read.Swap(false) {
			d.hand++
			passed++
		} else {
			d.evict(e)
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
func (d *decoded) memoryIsShort() bool {
	second := time.Now().Unix()
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

// isNearMemoryLimit reports whether the process needs more than nine tenths of its memory limit: what was live at the
// last garbage collection, and what is not heap.
func isNearMemoryLimit() bool {
	names := []string{
		"/gc/gomemlimit:bytes", "/gc/heap/live:bytes", "/memory/classes/total:bytes",
		"/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	limit, needed := samples[0].Value.Uint64(), samples[1].Value.Uint64()+samples[2].Value.Uint64()
	for _, heap := range samples[3:] {
		needed -= heap.Value.Uint64()
	}
	return limit < math.MaxInt64 && needed > limit/10*9
}

// copyOf returns a copy of obj, or nil if the method of the Go type, which may be written by hand, makes none.
func copyOf(obj kube.Object) (copied kube.Object) {
	_ = usercode.Recover("DeepCopyObject", func() { copied, _ = obj.DeepCopyObject().(kube.Object) })
	if copied == nil || copied == obj || reflect.TypeOf(copied) != reflect.TypeOf(obj) || usercode.IsNil(copied) {
		return nil
	}
	return copied
}
