package detect

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// guests is how many newcomers come when there is no room, until one stays.
const guests = 32

// trackID is the hash of a key and an object that its runs write. One number is quicker to look
// up than six strings. Two of the 4,096 tracks are one by mistake once in 10^12.
type trackID uint64

func (h *HotLoops) id(key kube.Key, kind schema.GroupKind, object kube.Key) trackID {
	return trackID(maphash.Comparable(h.seed, struct {
		key    kube.Key
		kind   schema.GroupKind
		object kube.Key
	}{key, kind, object}))
}

// track is what is known of the writes of one object by one key.
type track struct {
	key     kube.Key
	version string    // the resourceVersion of the last write
	at      time.Time // of the last write
	run     uint64    // that made it
	// versionBefore is the resourceVersion of the last write before that run.
	versionBefore string

	writes tally
	// echoes counts the writes of runs that nothing but the key's own writes had caused, since
	// the last run of another kind.
	echoes tally
	rest   time.Time // not to be looked at closely before
	// history is what is known of a suspect. Nil: it is none.
	history *history
}

// tally counts what happens within a window, which begins with the first.
type tally struct {
	count int
	since time.Time
}

func (t *tally) add(now time.Time, window time.Duration) int {
	if t.count == 0 || now.Sub(t.since) > window {
		*t = tally{since: now}
	}
	t.count++
	return t.count
}

// look is what Wrote takes with it from under the lock.
type look struct {
	id      trackID
	track   *track
	history *history     // nil: the object rests
	base    *wire.Object // the state before the write; nil: not known
	last    *wire.Object // the state after the key's last write; nil: not kept
	echo    bool         // nothing but the key's own writes has caused the run
	about   bool         // a change of the object by others is among the run's causes
}

// count notes a write. It returns false when there is nothing more to be found out about it.
func (h *HotLoops) count(key kube.Key, w *Step, now time.Time) (look, bool) {
	l := look{id: h.id(key, w.Kind, w.Object)}
	h.mu.Lock()
	defer h.mu.Unlock()
	tr, ok := h.tracks.get(l.id)
	if w.After == nil {
		if ok {
			h.unfollow(tr)
			h.tracks.remove(l.id)
		}
		return l, false
	}
	if !ok {
		tr = h.newcomer(l.id, key, now)
	} else if tr.version == w.After.ResourceVersion {
		return l, false
	}
	if now.Sub(tr.at) > h.window {
		h.unfollow(tr)
		*tr = track{key: key} // another story
	}
	previous := tr.version
	if tr.run != w.Run {
		tr.run, tr.versionBefore = w.Run, tr.version
	}
	tr.version, tr.at = w.After.ResourceVersion, now
	if tr.writes.add(now, h.window) <= unseenWrites && tr.history == nil {
		return l, false
	}
	l.track = tr
	l.echo, l.about = h.origin(key, w)
	if tr.history == nil && (l.echo || !now.Before(tr.rest)) {
		tr.history = newHistory()
		h.suspects.add(key, 1)
	}
	if l.history = tr.history; l.history != nil {
		if last := l.history.last; last != nil && last.ResourceVersion == previous {
			l.last = last
		}
		l.base = base(w, l.last, previous)
	}
	return l, true
}

// newcomer makes a track.
func (h *HotLoops) newcomer(id trackID, key kube.Key, now time.Time) *track {
	if old, tr, ok := h.tracks.oldest(); ok && now.Sub(tr.at) > h.window {
		h.unfollow(tr)
		h.tracks.remove(old)
	}
	guest := false
	if h.tracks.len() == h.tracks.limit {
		_, tr, _ := h.tracks.oldest()
		h.unfollow(tr)
		h.newcomers++
		guest = h.newcomers%guests != 0
	}
	tr := &track{key: key}
	h.tracks.add(id, tr, guest)
	return tr
}

// unfollow forgets what is known of a suspect.
func (h *HotLoops) unfollow(tr *track) {
	if tr.history != nil {
		h.keep(tr.history, nil)
		tr.history = nil
		h.suspects.add(tr.key, -1)
	}
}

// keep makes last the state that the next write is compared with, if there is room for it.
func (h *HotLoops) keep(known *history, last *wire.Object) {
	if known.last != nil {
		h.kept -= len(known.last.Bytes)
	}
	if last != nil && h.kept+len(last.Bytes) > maxKept {
		last = nil
	}
	if known.last = last; last != nil {
		h.kept += len(last.Bytes)
	}
}

// base returns the state that a write has found: what the cache showed, or what the key's last
// write, with the given version, had left when the cache did not show that yet.
func base(w *Step, last *wire.Object, version string) *wire.Object {
	b := w.Before
	if b == nil || older(b.ResourceVersion, version) {
		b = last
	}
	if b != nil && !older(b.ResourceVersion, w.After.ResourceVersion) {
		return nil // the cache was ahead, or versions cannot be compared
	}
	return b
}

// origin looks at what has caused the run that makes a write.
func (h *HotLoops) origin(key kube.Key, w *Step) (echo, about bool) {
	echo = len(w.Causes) > 0 && !w.CausesDropped
	for i := range w.Causes {
		c := &w.Causes[i]
		if !c.Changed {
			echo = false
			continue
		}
		own := h.own(key, c, w.Run)
		about = about || !own && c.Kind == w.Kind && c.Object == w.Object
		echo = echo && own
	}
	return echo, about
}

// own tells whether a change is the last write of the key before a run.
func (h *HotLoops) own(key kube.Key, c *Cause, run uint64) bool {
	tr, ok := h.tracks.peek(h.id(key, c.Kind, c.Object))
	if !ok || c.ResourceVersion == "" {
		return false
	}
	if tr.run == run {
		return c.ResourceVersion == tr.versionBefore
	}
	return c.ResourceVersion == tr.version
}
