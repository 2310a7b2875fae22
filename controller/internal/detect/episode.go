package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Pattern is a pattern of writes that identifies a hot loop: a rate that no useful work explains. In this package,
// another client is any writer other than the runs of the key, for example another key of the same controller.
//
// The following are not hot loops, because they are harmless or have an external reason:
//   - any number of runs that write nothing;
//   - drift that is repaired now and then;
//   - many objects that are written once each;
//   - progress: values that the object has not had before, written by fewer than ten runs a second;
//   - writes that follow something new: a change of the spec by a user, a rollout, a change of another object, an
//     external event;
//   - retries and requeues at their own pace, whatever they write.
type Pattern string

// The patterns.
const (
	// PatternUndone: the key wrote the same value into the same field at least five times within the window, and
	// another client changed it in between each time. Times do not count. The causes of the runs do not matter. (A
	// flag that the handler sets and another client removes, again and again, looks the same.)
	PatternUndone Pattern = "undone"
	// PatternReturning: only the key's own writes caused its runs, and these wrote the same again and again: A, B, A,
	// B, or the same with another time in it.
	PatternReturning Pattern = "returning"
	// PatternEndless: only the key's own writes caused its runs, and these wrote the object 300 times in a row within
	// the window, whatever they wrote; or 3,000 runs within the window wrote it although no other object had changed.
	PatternEndless Pattern = "endless"
	// PatternFlipping: 30 runs within the window, each caused by a change of the object by another client, wrote what
	// an earlier run had written, while the run before wrote something else. Two parts of the handler disagree, and
	// the reactions of other clients keep the loop going. (A status that mirrors a field of its own object looks the
	// same, if other clients flip the field as often.)
	PatternFlipping Pattern = "flipping"
	// PatternIdle: 600 runs within the window, two a second, wrote only times and what earlier runs had written, and
	// other clients wrote nothing new in between.
	PatternIdle Pattern = "idle"
	// PatternRecreated: within the window, the key has deleted and created the object 30 times, or created it again
	// 600 times, for the same generation of its own object, or for generations less than a second apart.
	PatternRecreated Pattern = "recreated"
	// PatternRestless: in 20 resyncs in a row, although nothing else had happened, the key replaced a text that it had
	// written itself, outside of the status. A generated password is an example. Of an object that no informer shows,
	// only patches count.
	PatternRestless Pattern = "restless"
)

const (
	// maxEpisodeFields is the maximum number of fields in an Episode.
	maxEpisodeFields = 8
	// maxValue is the maximum length of a value in an Episode, in bytes.
	maxValue = 40
)

// Episode is a hot loop of one key.
type Episode struct {
	Pattern Pattern
	Key     kube.Key
	// Kind and Object identify the object that is written again and again.
	Kind   schema.GroupKind
	Object kube.Key
	// Fields are the fields that change back and forth, ordered by path, at most eight. MoreFields is the number of
	// further ones. Fields is empty if the object's states could not be compared.
	Fields     []FieldValues
	MoreFields int
	// Managers are the field managers that write the fields, the key's own first. The others are those that were seen
	// to undo the key's writes; there may be more.
	Managers []string
	// Writes is the number of counted writes, and Since the time of the first one.
	Writes int
	Since  time.Time
	// Message is a sentence that describes the problem and what to check.
	Message string
}

// FieldValues is a field and its last two values: the one that the key found, and the one that it wrote. Values are
// JSON, cut to some 40 bytes, or "(hidden)".
type FieldValues struct {
	Path   string
	Values [2]string
}

// episode is an active episode.
type episode struct {
	Episode
	lasts  time.Duration // from the last sign to the end
	sign   time.Time     // time of the last sign
	pause  time.Duration
	raised time.Time // time when the pause was last raised
}

// judge records what a write changed, and begins an episode if that is sufficient evidence.
func (h *HotLoops) judge(l *look, w *Step, d comparison, now time.Time) (Episode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr := h.tracks[l.id]; tr != l.track || tr.history != l.history {
		return Episode{}, false // removed in the meantime
	}
	found := Episode{Key: l.track.key, Kind: w.Kind, Object: w.Object}
	lasts, sign := Window, l.recreated
	var s signs
	var fields map[string]*field
	if l.history != nil {
		s, fields = h.record(l, w, d, now), l.history.fields
	}
	if l.history == nil && d.after != nil {
		h.keep(&l.track.resynced, d.after)
		if d.known && l.track.rewritten.run != w.Run && !slices.ContainsFunc(d.own, isText) { // it repaired drift
			l.track.rewritten = rewritten{}
		}
	}
	if l.resync && d.known {
		r := &l.track.rewritten
		c, again := r.add(h, w.Run, d.own, now)
		if sign = sign || again; r.times > restlessLimit {
			found.Pattern, found.Writes, found.Since = PatternRestless, r.times, r.since
			lasts, fields = max(lasts, h.slowWindow), map[string]*field{c.Path: {changes: r.times, last: shorten(c)}}
		}
	}
	lasting := h.lasting(l.track.key, now)
	if lasting != nil && (sign || lasting.goesOn(l, s)) {
		lasting.again(now)
	}
	if lasting != nil || found.Pattern == "" && !found.decide(l, s) {
		return Episode{}, false
	}
	found.describe(l.history, fields, w.Hides, now)
	return found, h.begin(found, lasts, now)
}

// record adds a write to the history of its object.
func (h *HotLoops) record(l *look, w *Step, d comparison, now time.Time) (s signs) {
	k := l.history
	if apiobject.OlderVersion(w.After.ResourceVersion, k.version) {
		d.known = false // two concurrent writes: their order is unknown
	} else {
		k.version = w.After.ResourceVersion
		h.keep(&k.last, d.after)
	}
	k.own = addManager(k.own, w.Manager)
	s = h.note(k, d, l, w.Run, now)
	if s.points > 0 || s.undone != nil || l.echo {
		k.dull = 0
	} else if k.dull++; k.dull >= dullLimit {
		h.unfollow(l.track)
		l.track.rest = now.Add(Window)
	}
	return s
}

// decide sets the pattern, its writes and its start if the signs show a pattern. Otherwise it returns false.
func (e *Episode) decide(l *look, s signs) bool {
	tr, row := l.track, tally{}
	switch {
	case s.undone != nil && s.undone.fought():
		e.Pattern, row = PatternUndone, s.undone.undone
	case l.history != nil && s.points > 0 && l.history.score.points >= loopPoints:
		e.Pattern, row = s.pattern, l.history.score
	case tr.runs.count >= endlessRuns:
		e.Pattern, row = PatternEndless, tr.runs
	case tr.recreated.times.points >= loopPoints:
		e.Pattern, row = PatternRecreated, tr.recreated.times
	default:
		return false
	}
	e.Writes, e.Since = row.count+1, row.since
	return true
}

// describe sets the fields, the managers and the message. k may be nil.
func (e *Episode) describe(k *history, fields map[string]*field, hides func(path string) bool, now time.Time) {
	onlyTimes := e.addFields(fields, hides)
	if k != nil {
		e.Managers = slices.Clone(k.own)
	}
	if e.Pattern == PatternUndone {
		for _, manager := range k.opposing {
			e.Managers = addManager(e.Managers, manager)
		}
	}
	e.Message = e.message(k, onlyTimes, now.Sub(e.Since))
}

// addFields adds the fields of the pattern. It reports whether all of them are times.
func (e *Episode) addFields(fields map[string]*field, hides func(path string) bool) (onlyTimes bool) {
	if hides == nil {
		hides = func(path string) bool { return (&apiobject.HiddenFields{}).Hides(e.Kind, path) }
	}
	onlyTimes = true
	for _, f := range fields {
		if e.Pattern == PatternUndone && f.undone.count == 0 || f.changes < 2 {
			continue
		}
		shown := FieldValues{f.last.At.Shown(hides), [2]string{f.last.From, f.last.To}}
		if hides(f.last.At.Indexed()) {
			shown.Values = [2]string{apiobject.HiddenText, apiobject.HiddenText}
		}
		if !slices.Contains(e.Fields, shown) {
			e.Fields = append(e.Fields, shown)
		}
		onlyTimes = onlyTimes && f.time
	}
	slices.SortFunc(e.Fields, func(a, b FieldValues) int { return cmp.Compare(a.Path, b.Path) })
	if more := len(e.Fields) - maxEpisodeFields; more > 0 {
		e.Fields, e.MoreFields = e.Fields[:maxEpisodeFields], more
	}
	return onlyTimes && len(e.Fields) > 0
}

func (e *Episode) message(k *history, onlyTimes bool, lasted time.Duration) string {
	within := "within " + max(lasted.Round(time.Second), time.Second).String()
	object := strings.TrimSpace(e.Kind.Kind + " " + e.Object.String())
	effect := "bring nothing new"
	if onlyTimes {
		effect = "change nothing but times"
	}
	writes := fmt.Sprintf("%s: %d writes %s", object, e.Writes, within)
	switch e.Pattern {
	case PatternUndone:
		return fmt.Sprintf("%s: %d times %s the handler has written %s, and each time %s had changed it in between: "+
			"let only one of them write it", object, e.Writes, within, e.fields(), opponents(k))
	case PatternReturning:
		return fmt.Sprintf("%s were made by runs that only the key's own writes had caused, and they %s (%s): "+
			"write only what differs, and leave Config.Runs.HandleOwnWrites off", writes, effect, e.fields())
	case PatternEndless:
		return fmt.Sprintf("%s were made by runs that only the key's own writes, or another client's answers "+
			"to them, had "+
			"caused (%s): write only what differs, and leave Config.Runs.HandleOwnWrites off", writes, e.fields())
	case PatternIdle:
		return fmt.Sprintf("%s %s, and nothing new had happened before them (%s): write only what differs, and a time "+
			"only together with something else", writes, effect, e.fields())
	case PatternRecreated:
		return fmt.Sprintf("%s: the handler has created it %d times %s: look for two places that want different "+
			"things, or for another client that deletes it", object, e.Writes, within)
	case PatternRestless:
		return fmt.Sprintf("%s: in %d resyncs in a row, the handler has replaced its own value of %s although nothing "+
			"had changed: create content that is random only once, and poll what is outside of the cluster "+
			"with a source",
			object, e.Writes, e.fields())
	default:
		return fmt.Sprintf("%s: the handler has changed its mind %d times %s (%s): "+
			"look for two places in it that want different things, for a result that depends on its own last one, "+
			"or for a value that it follows and that others change back and forth",
			object, e.Writes, within, e.fields())
	}
}

// fields returns the fields with their values, for the message.
func (e *Episode) fields() string {
	if len(e.Fields) == 0 {
		return "its fields are not known"
	}
	var words []string
	for _, f := range e.Fields[:min(len(e.Fields), 3)] {
		words = append(words, fmt.Sprintf("%s from %s to %s", f.Path, f.Values[0], f.Values[1]))
	}
	if more := len(e.Fields) - len(words) + e.MoreFields; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// opponents returns the field managers that undo the key's writes.
func opponents(k *history) string {
	if len(k.opposing) == 0 {
		return "somebody else"
	}
	var words []string
	for _, manager := range k.opposing {
		if slices.Contains(k.own, manager) {
			manager += " (the same name as the handler's: another key that writes the object, or another copy of " +
				"the program)"
		}
		words = append(words, manager)
	}
	return strings.Join(words, ", ")
}

// shorten cuts a change's values to the length for a message.
func shorten(c FieldChange) FieldChange {
	c.From, c.To = shortValue(c.From), shortValue(c.To)
	return c
}

func shortValue(encoded string) string {
	if encoded == "" {
		return "(none)"
	}
	if len(encoded) <= maxValue {
		return encoded
	}
	end := maxValue
	for !utf8.RuneStart(encoded[end]) {
		end--
	}
	return strings.Clone(encoded[:end]) + "..."
}
