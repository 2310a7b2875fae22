package detect

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// keepEvery: when the tracks are full, every 32nd new track replaces another one.
const keepEvery = 32

// trackID is the hash of a key and an object that its runs write. One number is faster to look up than six strings.
// The probability that two of the 4,096 tracks have the same ID is 10^-12.
type trackID uint64

func (h *HotLoops) id(key kube.Key, kind schema.GroupKind, object kube.Key) trackID {
	return trackID(maphash.Comparable(h.seed, struct {
		key    kube.Key
		kind   schema.GroupKind
		object kube.Key
	}{key, kind, object}))
}

// track is the state of one key's writes of one object.
type track struct {
	key     kube.Key
	owner   types.UID // of the key's object; empty: not known
	version string    // the resourceVersion of the last write
	at      time.Time // time of the last write
	run     uint64    // run of the last write
	// versionBefore is the resourceVersion of the last write before that run.
	versionBefore string

	writes tally
	// runs counts the runs that wrote the object and that no change of another object has caused.
	runs      tally
	rest      time.Time // writes are not compared before
	recreated recreated
	rewritten rewritten
	// resynced is the state after the last write, if only a resync caused it and the state before is not known.
	resynced *wire.Object
	// history is the history of a suspect. Nil: the key is not a suspect for this object.
	history *history
}

// tally counts events within the Window. The window starts with the first event.
type tally struct {
	count  int
	points int
	since  time.Time
}

func (t *tally) add(points int, now time.Time) {
	if t.count == 0 || now.Sub(t.since) > Window {
		*t = tally{since: now}
	}
	t.count++
	t.points += points
}

// look is the state of a track that Wrote uses after it has released the lock.
type look struct {
	origin

	id      trackID
	track   *track
	history *history     // nil: writes of the object are not compared now
	base    *wire.Object // the state before the write; nil: not known
	last    *wire.Object // the state after the key's last write; nil: not kept
	// resynced is that of the track.
	resynced *wire.Object
	// recreated is true if the write has created the object again.
	recreated bool
}

// count counts a write. It returns false if the write needs no further check.
func (h *HotLoops) count(key kube.Key, w *Step, now time.Time) (look, bool) {
	l := look{id: h.id(key, w.Kind, w.Object)}
	h.mu.Lock()
	defer h.mu.Unlock()
	tr := h.tracks[l.id]
	if w.After == nil {
		if tr != nil {
			h.unfollow(tr)
			tr.recreated.deleted = true
		}
		return l, false
	}
	if tr == nil {
		if tr = h.newTrack(l.id, key); tr == nil {
			return l, false
		}
	} else if tr.version == w.After.ResourceVersion {
		return l, false
	}
	h.renew(tr, w.Owner.UID, now)
	previous := tr.version
	isNewRun := tr.run != w.Run || previous == ""
	if isNewRun {
		tr.run, tr.versionBefore = w.Run, tr.version
	}
	tr.version, tr.at = w.After.ResourceVersion, now
	tr.writes.add(0, now)
	l.track, l.origin = tr, h.origin(key, w)
	if l.resynced = tr.resynced; !l.resync {
		h.keep(&tr.resynced, nil)
	}
	if l.external {
		tr.recreated.times = tally{} // something outside of the cluster is the reason
	}
	l.recreated = tr.recreated.add(w, now)
	if tr.writes.count <= unseenWrites && tr.history == nil {
		return l, l.resync || l.recreated
	}
	if isNewRun && !l.other {
		tr.runs.add(0, now)
	}
	if tr.history == nil && (l.echo || !now.Before(tr.rest)) {
		h.follow(tr)
	}
	if l.history = tr.history; l.history != nil {
		if last := l.history.last; last != nil && last.ResourceVersion == previous {
			l.last = last
		}
		l.base = base(w, l.last, previous)
	}
	return l, true
}

// renew removes the writes that do not count: those before the window, and those for an earlier object of the name.
func (h *HotLoops) renew(tr *track, owner types.UID, now time.Time) {
	isOther := owner != "" && owner != tr.owner
	if !isOther && now.Sub(tr.at) <= Window {
		return
	}
	h.unfollow(tr)
	if isOther {
		h.keep(&tr.resynced, nil)
		*tr = track{key: tr.key, owner: owner}
		return
	}
	*tr = track{
		key: tr.key, owner: tr.owner, rewritten: tr.rewritten, recreated: recreated{uid: tr.recreated.uid},
		resynced: tr.resynced,
	}
}

// newTrack creates a track. If there is no room, it returns nil, or removes another one.
func (h *HotLoops) newTrack(id trackID, key kube.Key) *track {
	if len(h.tracks) >= h.limit {
		if h.created++; h.created%keepEvery != 0 {
			return nil
		}
		for other, tr := range h.tracks { // any
			h.remove(other, tr)
			break
		}
	}
	tr := &track{key: key}
	h.tracks[id] = tr
	return tr
}

// expired reports whether the object of a track was not written for so long that its writes count no more.
func (h *HotLoops) expired(tr *track, now time.Time) bool {
	return now.Sub(tr.at) > Window && now.Sub(tr.rewritten.at) > h.slowWindow &&
		(tr.resynced == nil || now.Sub(tr.at) > h.slowWindow)
}

// remove removes a track.
func (h *HotLoops) remove(id trackID, tr *track) {
	h.unfollow(tr)
	h.keep(&tr.resynced, nil)
	delete(h.tracks, id)
}

// follow makes the key of a track a suspect: its writes of the object are compared from now on.
func (h *HotLoops) follow(tr *track) {
	s := h.suspects[tr.key]
	if s == nil {
		s = &suspect{}
		h.suspects[tr.key] = s
		h.anySuspect.Store(true)
	}
	s.histories++
	tr.history = newHistory(s.news)
}

// unfollow removes the history of a suspect.
func (h *HotLoops) unfollow(tr *track) {
	if tr.history == nil {
		return
	}
	h.keep(&tr.history.last, nil)
	tr.history = nil
	if s := h.suspects[tr.key]; s.histories > 1 {
		s.histories--
		return
	}
	delete(h.suspects, tr.key)
	h.anySuspect.Store(len(h.suspects) > 0)
}

// keep keeps last as the state that the next write is compared with, if the limit maxKept allows it.
func (h *HotLoops) keep(kept **wire.Object, last *wire.Object) {
	if *kept != nil {
		h.kept -= len((*kept).Bytes)
	}
	if last != nil && h.kept+len(last.Bytes) > maxKept {
		last = nil
	}
	if *kept = last; last != nil {
		h.kept += len(last.Bytes)
	}
}

// base returns the state before a write: the cached state or, if the cache did not show the key's last write
// (version) yet, the state after that write.
func base(w *Step, last *wire.Object, version string) *wire.Object {
	b := w.Before
	if b == nil || apiobject.OlderVersion(b.ResourceVersion, version) {
		b = last
	}
	if b != nil && !apiobject.OlderVersion(b.ResourceVersion, w.After.ResourceVersion) {
		return nil // the cache was newer than the write, or the versions cannot be compared
	}
	return b
}

// origin is what the causes of a run say about its writes of an object.
type origin struct {
	echo     bool // all causes are the key's own writes
	about    bool // one cause is a change of the object by another client
	other    bool // one cause is a change of another object by another client, or external
	external bool // one cause is an external event or not known
	resync   bool // one cause is a resync, and all others are the key's own writes
}

func (h *HotLoops) origin(key kube.Key, w *Step) origin {
	known, resyncs := len(w.Causes) > 0 && !w.CausesDropped, false
	o := origin{echo: known, resync: known, external: w.CausesDropped}
	for i := range w.Causes {
		c := &w.Causes[i]
		own := c.Changed && h.own(key, c, w.Run)
		about := c.Changed && !own && c.Kind == w.Kind && c.Object == w.Object
		o.echo, o.resync, resyncs = o.echo && own, o.resync && (own || c.Resync), resyncs || c.Resync
		o.about, o.external = o.about || about, o.external || c.External
		o.other = o.other || c.Changed && !own && !about
	}
	o.other, o.resync = o.other || o.external, o.resync && resyncs
	return o
}

// own reports whether a change is the key's last write before a run.
func (h *HotLoops) own(key kube.Key, c *Cause, run uint64) bool {
	tr := h.tracks[h.id(key, c.Kind, c.Object)]
	if tr == nil || c.ResourceVersion == "" {
		return false
	}
	if tr.run == run {
		return c.ResourceVersion == tr.versionBefore
	}
	return c.ResourceVersion == tr.version
}
