package detect

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// DefaultWindow is the time within which writes are seen together, and after which an
	// episode without further signs is over.
	DefaultWindow = 5 * time.Minute
	// DefaultMaxObjects is how many written objects are remembered.
	DefaultMaxObjects = 4096
	// MinPause is how long a key in a hot loop is held back at first.
	MinPause = time.Second
	// MaxPause is how long it is held back at most.
	MaxPause = time.Minute

	// unseenWrites is how many writes of an object within the window are only counted.
	unseenWrites = 2
	// maxFields is how many fields of an object a write may change: more is no loop.
	maxFields = 64
	// maxKept bounds the states that are kept for comparison, in bytes, for all keys.
	maxKept = 16 << 20
)

// HotLoopsConfig configures HotLoops. The zero value is valid.
type HotLoopsConfig struct {
	// Content decodes a state of an object of kind, as Content does. It must be safe for
	// concurrent use. Default: JSON is decoded; protobuf is not, and a loop that writes only
	// objects that cannot be decoded is found by PatternEndless alone.
	Content func(kind schema.GroupKind, o *wire.Object) (map[string]any, error)
	// Window is the time within which writes are seen together, and after which an episode
	// without further signs is over. Default DefaultWindow.
	Window time.Duration
	// MaxObjects is how many written objects are remembered. Default DefaultMaxObjects.
	MaxObjects int
}

// HotLoops finds keys that are run and write again and again without getting anywhere. See
// Pattern for what is called so, and for what is not.
//
// Its flow:
//
//  1. The controller tells of every write that a run has made (Wrote). The first two writes of
//     one object by one key within the window are only counted, which takes some 100 ns.
//  2. From the third on the key is a suspect (Suspect): its writes are compared with what was
//     there before, field by field, and the controller also tells who else changes the object
//     (Changed).
//  3. Wrote returns an Episode, once, when there is no doubt any more.
//  4. While the episode lasts, the controller holds the key back (Pause).
//  5. The episode is over when the window has passed without another sign of it.
//
// Memory is bounded: by the number of objects, and 16 MiB for the states that are compared. What was
// not written within the window is forgotten when Episodes is called, and what is known of an object
// that is gone when Gone or ObjectGone tells so. An
// object that 64 writes in a row have shown to be well is left alone for a window. So that a
// loop of more keys than there is room for is still found in some of them, a newcomer mostly
// takes the place of another newcomer once the room is used up.
//
// It is safe for concurrent use. Made by NewHotLoops.
type HotLoops struct {
	// Immutable after NewHotLoops.
	content func(kind schema.GroupKind, o *wire.Object) (map[string]any, error)
	window  time.Duration
	seed    maphash.Seed

	suspects suspects

	mu        sync.Mutex
	tracks    *lru[trackID, *track] // guarded by mu; by key and object
	newcomers int                   // guarded by mu; tracks made while there was no room
	kept      int                   // guarded by mu; bytes of all histories' last states
	episodes  map[kube.Key]*episode // guarded by mu
	some      atomic.Bool           // whether there are episodes
}

// Step is a write that a run has made, or a change that an informer has shown.
type Step struct {
	// Kind and Object name the object, Kind as the causes of runs name it.
	Kind   schema.GroupKind
	Object kube.Key
	// Before is the state before the step: for a write, what the cache showed when the request
	// was sent. Nil: not known. After is the state after it: for a write, what the API server has
	// answered. Nil: the object is gone.
	//
	// Both must be in the same API version and with the same fields cut; managedFields may be cut
	// from one of them. They must stay valid during the call; what is kept of them is copied.
	Before, After *wire.Object
	// Manager is the field manager that made the step. Empty: not known.
	Manager string

	// Content, if set, is used in place of HotLoopsConfig.Content, by a caller that has decoded some
	// of the states already. Its results are not changed.
	Content func(o *wire.Object) (map[string]any, error)

	// The following are read by Wrote alone.

	// Run tells the runs of a key apart: the writes of one run have the same, those of the next
	// another.
	Run uint64
	// Causes are why the run was made. CausesDropped is true if there were more.
	Causes        []Cause
	CausesDropped bool
}

// Cause is a cause of a run.
type Cause struct {
	// Changed is true if an object was created or updated. The other fields identify the object and its new state.
	Changed         bool
	Kind            schema.GroupKind
	Object          kube.Key
	ResourceVersion string
}

// NewHotLoops returns a HotLoops that has seen nothing.
func NewHotLoops(config HotLoopsConfig) *HotLoops {
	if config.Content == nil {
		config.Content = func(_ schema.GroupKind, o *wire.Object) (map[string]any, error) { return Content(o, nil) }
	}
	if config.Window <= 0 {
		config.Window = DefaultWindow
	}
	if config.MaxObjects <= 0 {
		config.MaxObjects = DefaultMaxObjects
	}
	return &HotLoops{
		content: config.Content, window: config.Window, seed: maphash.MakeSeed(),
		suspects: suspects{seed: maphash.MakeSeed()},
		tracks:   newLRU[trackID, *track](config.MaxObjects),
		episodes: make(map[kube.Key]*episode),
	}
}

// Wrote tells that a run of key has done w. A write that left the object as it was (the
// resourceVersion is that of Before, or of the key's last write) is none. The Episode is valid
// when began is true: this write has made it certain that key is in a hot loop.
func (h *HotLoops) Wrote(key kube.Key, w *Step, now time.Time) (found Episode, began bool) {
	if w.After != nil && w.Before != nil && w.After.ResourceVersion == w.Before.ResourceVersion {
		return Episode{}, false
	}
	look, ok := h.count(key, w, now)
	if !ok {
		return Episode{}, false
	}
	var d difference
	if look.history != nil {
		d = h.difference(&look, w) // not under the lock: it decodes objects
	}
	return h.judge(&look, w, d, now)
}

// Suspect tells whether Changed wants to know of the changes that cause runs of key. It costs a
// few nanoseconds. It may be true of a key that is none.
func (h *HotLoops) Suspect(key kube.Key) bool { return h.suspects.may(key) }

// Changed tells that an informer has shown c, which is why key is enqueued. It is of use for
// suspects only, and finds out who works against them.
func (h *HotLoops) Changed(key kube.Key, c *Step, now time.Time) {
	if !h.suspects.may(key) || c.Before == nil || c.After == nil || c.Manager == "" {
		return
	}
	id := h.id(key, c.Kind, c.Object)
	if !h.follows(id, c.After.ResourceVersion, now) {
		return
	}
	changes, known := h.compare(c, c.Before, c.After)
	if !known {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr, ok := h.tracks.peek(id); ok && tr.history != nil {
		tr.history.oppose(h.seed, changes, c.Manager)
	}
}

// follows tells whether an object is looked at closely, and version is later than the key's
// last write of it.
func (h *HotLoops) follows(id trackID, version string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	tr, ok := h.tracks.peek(id)
	if !ok || tr.history == nil {
		return false
	}
	if now.Sub(tr.at) > h.window {
		h.unfollow(tr)
		return false
	}
	return older(tr.version, version)
}

// difference is what a write of a suspect has changed.
type difference struct {
	// own are the changes by the write. known is false when it cannot be told which.
	own   []FieldChange
	known bool
	// sure is false when changes by others may be among own: the cache did not yet show the key's
	// last write.
	sure bool
	// others are the changes that others have made since the key's last write, where that is known.
	others []FieldChange
	after  *wire.Object // a copy of the state after the write
}

func (h *HotLoops) difference(l *look, w *Step) (d difference) {
	d.after, d.sure = w.After.Clone(), l.base == w.Before
	if d.own, d.known = h.compare(w, l.base, w.After); !d.known {
		return d
	}
	if d.sure && l.last != nil && l.last.ResourceVersion != w.Before.ResourceVersion {
		d.others, _ = h.compare(w, l.last, w.Before)
	}
	return d
}

// compare returns in which fields two states of a step's object differ; known is false when that
// cannot be told.
func (h *HotLoops) compare(s *Step, before, after *wire.Object) (changes []FieldChange, known bool) {
	if before == nil || before.UID != after.UID {
		return nil, false
	}
	content := s.Content
	if content == nil {
		content = func(o *wire.Object) (map[string]any, error) { return h.content(s.Kind, o) }
	}
	b, err := content(before)
	if err != nil {
		return nil, false // PatternEndless does not need it
	}
	a, err := content(after)
	if err != nil || b["apiVersion"] != a["apiVersion"] {
		return nil, false
	}
	changes, total := Diff(b, a, maxFields)
	return changes, total <= maxFields
}

// older reports whether resourceVersion a is before b. False when it cannot be told.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
