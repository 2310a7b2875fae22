package detect

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// restlessLimit is the number of resyncs in a row that replaced a value which the key itself had written.
const restlessLimit = 20

// recreated counts how often the key has created the object again.
type recreated struct {
	uid        types.UID // of the object that the key wrote last
	deleted    bool      // the key has deleted the object
	generation int64     // of the owner, at the last creation
	created    time.Time // of the last creation
	times      tally
}

// generationInterval is the least time between two generations of an owner that are work: faster ones come from a
// program in a loop.
const generationInterval = time.Second

// add records a write. It returns whether the write has created the object again, without a new desired state of the
// owner.
func (r *recreated) add(w *Step, now time.Time) bool {
	again := w.Created && w.After.UID != r.uid && (r.uid != "" || r.deleted)
	if w.Created {
		if w.Owner.Generation != r.generation && now.Sub(r.created) >= generationInterval {
			r.times, again = tally{}, false
		}
		r.generation, r.created = w.Owner.Generation, now
	}
	if again && r.deleted {
		r.times.add(pointsRecreated, now)
	} else if again {
		r.times.add(pointsIdle, now)
	}
	r.uid, r.deleted = w.After.UID, false
	return again
}

// rewritten counts the resyncs in a row in which the key replaced its own value of a field by another one.
type rewritten struct {
	path  string
	to    uint64 // hash of the value that the key wrote last
	from  uint64 // hash of the value before the run
	run   uint64 // the last one that was counted; 0 after a run has restored the value
	times int
	since time.Time
	at    time.Time
}

// add records the changes of a write in a run that only a resync has caused. It returns the field if it was rewritten.
func (r *rewritten) add(h *HotLoops, run uint64, changes []FieldChange, now time.Time) (c FieldChange, again bool) {
	for _, c = range changes {
		if !isText(c) {
			continue
		}
		if r.run == run && r.path == c.Path {
			if r.to = hashValue(h.seed, c.To); r.to == r.from {
				r.run, r.times = 0, r.times-1
			}
			return c, false
		}
		again = r.path == c.Path && r.to == hashValue(h.seed, c.From) && now.Sub(r.at) <= h.slowWindow
		if !again {
			*r = rewritten{since: now}
		}
		r.path, r.from, r.to, r.at = c.Path, hashValue(h.seed, c.From), hashValue(h.seed, c.To), now
		r.run, r.times = run, r.times+1
		return c, again
	}
	return c, false
}

// isText reports whether a field is text that the handler should not change on its own account. A status may follow
// anything, and times and numbers may go on.
func isText(c FieldChange) bool {
	if !strings.HasPrefix(c.To, `"`) || c.isTime() || c.Path == "status" || strings.HasPrefix(c.Path, "status.") {
		return false
	}
	text := strings.Trim(c.To, `"`)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return false
	}
	return !slices.ContainsFunc([]string{
		time.RFC1123, time.RFC1123Z, time.UnixDate, time.DateTime,
		"2006-01-02 15:04:05.999999999 -0700 MST", // of Time.String
	}, func(layout string) bool {
		_, err := time.Parse(layout, text)
		return err == nil
	})
}
