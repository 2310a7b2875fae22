package detect

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// Window is the time within which writes are counted together, and after which an episode without further signs
	// ends.
	Window = 5 * time.Minute
	// MinPause is how long a key in a hot loop is held back initially.
	MinPause = time.Second
	// MaxPause is how long it is held back at most.
	MaxPause = time.Minute

	// unseenWrites is the number of writes of an object within the window that are only counted.
	unseenWrites = 2
	// maxFields is the number of fields that a write may change: a write with more is not part of a loop.
	maxFields = 64
	// maxKept is the maximum total size of the states that are kept for comparison, in bytes, for all keys.
	maxKept = 16 << 20
)

// HotLoops detects keys that run and write again and again without progress. Pattern defines what is and what is not
// a hot loop.
//
// The flow:
//
//  1. The controller passes every write of a run (Wrote). The first two writes of one object by one key within the
//     window are only counted, which takes some 100 ns.
//  2. From the third write on, the key is a suspect (Suspect): its writes are compared field by field with the state
//     before. The controller also passes the changes of the object by other clients (Changed).
//  3. Wrote returns an Episode, once, when the evidence is certain.
//  4. While the episode lasts, the controller holds the key back (Pause).
//  5. The episode ends when the window has passed without another sign.
//
// Memory is bounded: by the number of objects, and 16 MiB for the states that are compared. Episodes removes objects
// that were not written within the window. Gone and ObjectGone remove deleted objects. An object without a sign of a
// loop in 64 writes in a row is ignored for a window. When the tracks are full, every 32nd new track replaces another
// one, so that a loop of more keys than tracks is still detected for some of the keys.
//
// HotLoops is safe for concurrent use. Create it with NewHotLoops.
type HotLoops struct {
	// Immutable after NewHotLoops.
	// slowWindow is the longest time between two resyncs in a row.
	slowWindow time.Duration
	seed       maphash.Seed
	limit      int // number of tracks, and of episodes

	mu       sync.Mutex
	suspects map[kube.Key]*suspect // guarded by mu
	tracks   map[trackID]*track    // guarded by mu; by key and object
	created  int                   // guarded by mu; tracks created while the limit was reached
	kept     int                   // guarded by mu; bytes of all histories' last states
	episodes map[kube.Key]*episode // guarded by mu
	some     atomic.Bool           // whether there are episodes
	// anySuspect is whether there are suspects.
	anySuspect atomic.Bool
}

// suspect is a key of which writes are compared.
type suspect struct {
	histories int    // number of objects
	news      uint64 // number of changes by other clients that brought something new
}

// Step is a write of a run, or a change that an informer announced.
type Step struct {
	// Kind and Object identify the object. Kind is the same as in the causes of runs.
	Kind   schema.GroupKind
	Object kube.Key
	// Hides reports whether the value of a field of the object must not be shown. Default: the values of Secrets are
	// not shown.
	Hides func(path string) bool
	// Before is the state before the step: for a write, the cached state when the request was sent. Nil: not known.
	// After is the state after the step: for a write, the one in the API server's response. Nil: the object no longer
	// exists.
	//
	// Both must have the same API version and the same fields cut; managedFields may be cut from only one of them.
	// They must stay valid during the call; HotLoops copies what it keeps.
	Before, After *wire.Object
	// Manager is the field manager that made the step. Empty: not known.
	Manager string

	// Differing returns the fields of two states of the object that may differ, like wire.DifferingFields. Default:
	// JSON is decoded, protobuf is not. If a loop writes only objects that cannot be decoded, only counts of writes
	// detect it.
	Differing differingFunc

	// Only Wrote reads the following fields.

	// Sent is the body of a patch, in JSON. If Before is not known, it tells the write's fields from those that another
	// client may have changed since the last write.
	Sent []byte
	// Created is true if the write has created the object.
	Created bool
	// Owner is the object that the run is about. Zero: not known.
	Owner Owner
	// Run identifies the run among the runs of its key: all writes of a run have the same Run.
	Run uint64
	// Causes are the causes of the run. CausesDropped is true if there were more.
	Causes        []Cause
	CausesDropped bool
}

type differingFunc = func(before, after *wire.Object) (from, to map[string]any, err error)

// Owner identifies an object and its desired state. Generation is 0 for kinds without generations.
type Owner struct {
	UID        types.UID
	Generation int64
}

// Cause is a cause of a run.
type Cause struct {
	// External is true for an event that does not come from the API server, and Resync for a resync.
	External, Resync bool
	// Changed is true if an object was created or updated. The other fields identify the object and its new state.
	Changed         bool
	Kind            schema.GroupKind
	Object          kube.Key
	ResourceVersion string
}

// NewHotLoops returns a HotLoops without any history that tracks limit written objects. resyncInterval is the time
// between two runs of an idle key, or 0 without resyncs. PatternRestless needs it.
func NewHotLoops(limit int, resyncInterval time.Duration) *HotLoops {
	return &HotLoops{
		slowWindow: 2 * resyncInterval, seed: maphash.MakeSeed(), limit: limit,
		suspects: make(map[kube.Key]*suspect), tracks: make(map[trackID]*track), episodes: make(map[kube.Key]*episode),
	}
}

// Wrote records the write w of a run of key. A write that did not change the object is ignored: its resourceVersion
// is that of Before, or of the key's last write. began is true if this write makes it certain that key is in a hot
// loop; only then is found valid.
func (h *HotLoops) Wrote(key kube.Key, w *Step, now time.Time) (found Episode, began bool) {
	if w.After != nil && w.Before != nil && w.After.ResourceVersion == w.Before.ResourceVersion {
		return Episode{}, false
	}
	look, ok := h.count(key, w, now)
	if !ok {
		return Episode{}, false
	}
	var d comparison
	// Without the lock, because this decodes objects.
	switch {
	case look.history != nil:
		d = look.compareWrite(w)
	case look.resync && w.Before != nil:
		d.own, d.known = compare(w, w.Before, w.After)
	case look.resync:
		d.own, d.known = compare(w, look.resynced, w.After)
		d.own = slices.DeleteFunc(d.own, func(c FieldChange) bool { return !bytes.Contains(w.Sent, []byte(c.To)) })
		d.after = w.After.Clone()
	}
	return h.judge(&look, w, d, now)
}

// Suspect reports whether the changes that cause runs of key should be passed to Changed. It costs a few nanoseconds
// while there are no suspects.
func (h *HotLoops) Suspect(key kube.Key) bool {
	if !h.anySuspect.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suspects[key] != nil
}

// Changed records the change c that an informer announced and that enqueues key. It is only used for suspects: to
// find out whether their runs have a reason, and the clients that undo their writes.
func (h *HotLoops) Changed(key kube.Key, c *Step, now time.Time) {
	if !h.anySuspect.Load() {
		return
	}
	id := h.id(key, c.Kind, c.Object)
	if !h.matters(key, id, c, now) {
		return
	}
	var changes []FieldChange
	known := false
	if c.Before != nil {
		changes, known = compare(c, c.Before, c.After)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.suspects[key]
	if s == nil {
		return
	}
	isNews := !known
	if tr := h.tracks[id]; tr != nil && tr.history != nil {
		// Times in managedFields are in seconds: if the key wrote the object in the same second, c.Manager may be its
		// own.
		manager := c.Manager
		if own, tied := tr.history.own, c.After.TiedManager; tied != "" && slices.Contains(own, manager) &&
			!slices.Contains(own, tied) {
			manager = tied
		}
		isNews = tr.history.oppose(h.seed, changes, manager) || isNews
	} else {
		isNews = isNews || slices.ContainsFunc(changes, func(f FieldChange) bool { return !f.isReaction() })
	}
	if isNews {
		s.news++
	}
}

// matters reports whether a change is to be compared: key is a suspect, and did not make the change itself.
func (h *HotLoops) matters(key kube.Key, id trackID, c *Step, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.suspects[key] == nil || c.After == nil {
		return false
	}
	tr := h.tracks[id]
	if tr == nil {
		return true
	}
	if tr.history != nil && now.Sub(tr.at) > Window {
		h.unfollow(tr)
	}
	return h.suspects[key] != nil && apiobject.OlderVersion(tr.version, c.After.ResourceVersion)
}

// comparison contains the changes made by a suspect's write.
type comparison struct {
	// own are the changes by the write. known is false if they cannot be determined.
	own   []FieldChange
	known bool
	// isCertain is false if own may include changes by other clients, because the cache did not show the key's last
	// write yet.
	isCertain bool
	// otherChanges are the changes by other clients since the key's last write, if they are known.
	otherChanges []FieldChange
	after        *wire.Object // a copy of the state after the write
}

func (l *look) compareWrite(w *Step) (d comparison) {
	d.after, d.isCertain = w.After.Clone(), l.base == w.Before
	if d.own, d.known = compare(w, l.base, w.After); !d.known {
		return d
	}
	if d.isCertain && l.last != nil && l.last.ResourceVersion != w.Before.ResourceVersion {
		d.otherChanges, _ = compare(w, l.last, w.Before)
	}
	return d
}

// compare returns the fields that differ between two states of a step's object. known is false if they cannot be
// determined.
func compare(s *Step, before, after *wire.Object) (changes []FieldChange, known bool) {
	if before == nil || before.UID != after.UID {
		return nil, false
	}
	differing := s.Differing
	if differing == nil {
		differing = func(before, after *wire.Object) (from, to map[string]any, err error) {
			return wire.DifferingFields(before, after, nil)
		}
	}
	b, a, err := differing(before, after)
	if err != nil {
		return nil, false // PatternEndless does not need it
	}
	// Protobuf has no apiVersion: the informer's kind is the one of the request then.
	if from, to := b["apiVersion"], a["apiVersion"]; from != nil && to != nil && from != to {
		return nil, false
	}
	return changesOf(b, a)
}
