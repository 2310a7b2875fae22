package detect

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Pause returns how long the next run of key must be held back, from the end of its last run: zero if the key is in
// no episode. The pause starts at MinPause, and doubles up to MaxPause each time the key shows another sign of the
// loop after a pause. Pause costs nanoseconds while there are no episodes.
func (h *HotLoops) Pause(key kube.Key, now time.Time) time.Duration {
	if !h.some.Load() {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.lasting(key, now); e != nil {
		return e.pause
	}
	return 0
}

// Episodes returns the active episodes, oldest first: the age of their last sign is at most the window.
func (h *HotLoops) Episodes(now time.Time) []Episode {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
	h.dropOld(now)
	var all []Episode
	for _, e := range h.episodes {
		all = append(all, e.Episode)
	}
	slices.SortFunc(all, func(a, b Episode) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all
}

// begin adds a new episode, which ends when lasts has passed without another sign. It returns false if there are too
// many.
func (h *HotLoops) begin(found Episode, lasts time.Duration, now time.Time) bool {
	if len(h.episodes) >= h.limit {
		if h.sweep(now); len(h.episodes) >= h.limit {
			return false
		}
	}
	h.episodes[found.Key] = &episode{Episode: found, lasts: lasts, sign: now, pause: MinPause, raised: now}
	h.some.Store(true)
	return true
}

// lasting returns the active episode of key, or nil.
func (h *HotLoops) lasting(key kube.Key, now time.Time) *episode {
	e := h.episodes[key]
	if e != nil && e.over(now) {
		delete(h.episodes, key)
		h.some.Store(len(h.episodes) > 0)
		return nil
	}
	return e
}

// Gone removes the history of key after the deletion of its object. A new object of the same name starts without
// history.
func (h *HotLoops) Gone(key kube.Key) {
	if !h.some.Load() && !h.Suspect(key) {
		return // tracks of keys that are not suspects are small, expire, and do not count for another Step.Owner
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.episodes, key)
	h.some.Store(len(h.episodes) > 0)
	for id, tr := range h.tracks {
		if tr.key == key {
			h.remove(id, tr)
		}
	}
}

// ObjectGone removes the history of an object, which runs of key may write, after its deletion. Its creations still
// count.
func (h *HotLoops) ObjectGone(key kube.Key, kind schema.GroupKind, object kube.Key) {
	if !h.anySuspect.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr := h.tracks[h.id(key, kind, object)]; tr != nil {
		h.unfollow(tr)
	} else if s := h.suspects[key]; s != nil {
		s.news++
	}
}

// dropOld removes the objects that were not written for long enough.
func (h *HotLoops) dropOld(now time.Time) {
	for id, tr := range h.tracks {
		if h.expired(tr, now) {
			h.remove(id, tr)
		} else if now.Sub(tr.at) > Window {
			h.unfollow(tr)
		}
	}
}

// sweep removes the episodes that have ended.
func (h *HotLoops) sweep(now time.Time) {
	for key, e := range h.episodes {
		if e.over(now) {
			delete(h.episodes, key)
		}
	}
	h.some.Store(len(h.episodes) > 0)
}

func (e *episode) over(now time.Time) bool { return now.Sub(e.sign) > e.lasts }

// goesOn reports whether a write is another sign.
func (e *episode) goesOn(l *look, s signs) bool {
	return l.echo || s.undone != nil || s.points > pointsIdle || s.points > 0 && e.Pattern == PatternIdle ||
		!l.other && e.Pattern == PatternEndless
}

// again records another sign. Several signs within one pause count as one: a run may write twice.
func (e *episode) again(now time.Time) {
	e.sign = now
	if now.Sub(e.raised) >= e.pause {
		e.pause, e.raised = min(2*e.pause, MaxPause), now
	}
}
