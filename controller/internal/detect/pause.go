package detect

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Pause returns how long the next run of key is to be held back, from the end of its last: zero
// when it is in no episode. It begins with MinPause, and doubles up to MaxPause each time that
// the key shows another sign of the loop after a pause. It costs nanoseconds while there are no
// episodes.
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

// Episodes returns the episodes that last, the oldest first: those whose last sign is no longer
// ago than the window.
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

// begin keeps a new episode. It returns false when there are too many.
func (h *HotLoops) begin(found Episode, now time.Time) bool {
	if len(h.episodes) >= h.tracks.limit {
		if h.sweep(now); len(h.episodes) >= h.tracks.limit {
			return false
		}
	}
	h.episodes[found.Key] = &episode{Episode: found, sign: now, pause: MinPause, raised: now}
	h.some.Store(true)
	return true
}

// lasting returns the episode that key is in; nil: none.
func (h *HotLoops) lasting(key kube.Key, now time.Time) *episode {
	e := h.episodes[key]
	if e != nil && e.over(now, h.window) {
		delete(h.episodes, key)
		h.some.Store(len(h.episodes) > 0)
		return nil
	}
	return e
}

// Gone tells that the object of key is gone: what was known of its runs is forgotten. The next
// object of the name begins anew.
func (h *HotLoops) Gone(key kube.Key) {
	if !h.some.Load() && !h.suspects.may(key) {
		return // what is left of others is small, and goes by time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.episodes, key)
	h.some.Store(len(h.episodes) > 0)
	for id, tr := range h.tracks.all() {
		if tr.key == key {
			h.unfollow(tr)
			h.tracks.remove(id)
		}
	}
}

// ObjectGone tells that an object that runs of key may write is gone.
func (h *HotLoops) ObjectGone(key kube.Key, kind schema.GroupKind, object kube.Key) {
	if !h.suspects.may(key) {
		return
	}
	id := h.id(key, kind, object)
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr, ok := h.tracks.peek(id); ok {
		h.unfollow(tr)
		h.tracks.remove(id)
	}
}

// dropOld forgets the objects that were not written within the window.
func (h *HotLoops) dropOld(now time.Time) {
	for id, tr := range h.tracks.all() {
		if now.Sub(tr.at) > h.window {
			h.unfollow(tr)
			h.tracks.remove(id)
		}
	}
}

// sweep forgets the episodes that are over.
func (h *HotLoops) sweep(now time.Time) {
	for key, e := range h.episodes {
		if e.over(now, h.window) {
			delete(h.episodes, key)
		}
	}
	h.some.Store(len(h.episodes) > 0)
}

func (e *episode) over(now time.Time, window time.Duration) bool { return now.Sub(e.sign) > window }

// again notes another sign. Several within one pause are one: a run may write twice.
func (e *episode) again(now time.Time) {
	e.sign = now
	if now.Sub(e.raised) >= e.pause {
		e.pause, e.raised = min(2*e.pause, MaxPause), now
	}
}
