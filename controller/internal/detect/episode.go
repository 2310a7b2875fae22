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

// Pattern is a pattern of writes that identifies a hot loop. In this package, another client is any writer other than
// the runs of the key, for example another key of the same controller.
//
// The following are not hot loops, because they are harmless or have an external reason:
//   - any number of runs that write nothing;
//   - drift that is repaired now and then;
//   - many objects that are written once each;
//   - progress that is written again and again, by runs that are caused by a timer, a requeue or the progress of
//     other objects;
//   - a status that follows something that flaps;
//   - times that are written for each event (heartbeats);
//   - retries and requeues, which have their own pace.
type Pattern string

// The patterns.
const (
	// PatternUndone: the key wrote the same value into the same field at least five times within the window, and
	// another client changed it in between each time. Times do not count. The causes of the runs do not matter. (A
	// flag that the handler sets and another client removes, again and again, looks the same.)
	PatternUndone Pattern = "undone"
	// PatternReturning: only the key's own writes caused its runs, and these wrote the same at least five times in a
	// row: A, B, A, B, or the same with another time in it.
	PatternReturning Pattern = "returning"
	// PatternEndless: only the key's own writes caused its runs, and these wrote the object 300 times in a row within
	// the window, whatever they wrote.
	PatternEndless Pattern = "endless"
	// PatternFlipping: 30 runs within the window, each caused by a change of the object by another client, wrote what
	// an earlier run had written, while the run before wrote something else. Two parts of the handler disagree, and
	// the reactions of other clients keep the loop going. (A status that mirrors a field of its own object looks the
	// same, if other clients flip the field as often.)
	PatternFlipping Pattern = "flipping"
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
	sign   time.Time // time of the last sign
	pause  time.Duration
	raised time.Time // time when the pause was last raised
}

// judge records what a write changed, and begins an episode if that is sufficient evidence.
func (h *HotLoops) judge(l *look, w *Step, d comparison, now time.Time) (Episode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr, ok := h.tracks.peek(l.id); !ok || tr != l.track || tr.history != l.history {
		return Episode{}, false // removed in the meantime
	}
	var s signs
	if l.echo {
		l.track.echoes.add(now, h.window)
	} else {
		l.track.echoes = tally{}
	}
	if l.history != nil {
		s = h.note(l, w, d, now)
	}
	lasting := h.lasting(l.track.key, now)
	if lasting != nil && (l.echo || s.undone != nil || s.flip) {
		lasting.again(now)
	}
	found := Episode{Key: l.track.key, Kind: w.Kind, Object: w.Object}
	if lasting != nil || !found.decide(l, s) {
		return Episode{}, false
	}
	found.describe(l.history, w.Hides, now)
	return found, h.begin(found, now)
}

// note adds a write to the history of its object.
func (h *HotLoops) note(l *look, w *Step, d comparison, now time.Time) (s signs) {
	k := l.history
	if apiobject.OlderVersion(w.After.ResourceVersion, k.version) {
		d.known = false // two concurrent writes: their order is unknown
	} else {
		k.version = w.After.ResourceVersion
		h.keep(k, d.after)
	}
	k.own = addManager(k.own, w.Manager)
	if !l.echo {
		k.endRow()
	}
	if d.known {
		s = k.note(h.seed, d, l, w.Run, now, h.window)
	} else {
		k.forget()
	}
	if l.echo || s.undone != nil || s.flip {
		k.dull = 0
	} else if k.dull++; k.dull >= dullLimit {
		h.unfollow(l.track)
		l.track.rest = now.Add(h.window)
	}
	return s
}

// decide sets the pattern, its writes and its start if the signs show a pattern. Otherwise it returns false.
func (e *Episode) decide(l *look, s signs) bool {
	k, echoes := l.history, l.track.echoes
	switch {
	case s.undone != nil && s.undone.fought():
		e.Pattern, e.Writes, e.Since = PatternUndone, s.undone.undone.count+1, s.undone.undone.since
	case s.returns >= returnLimit:
		e.Pattern, e.Writes, e.Since = PatternReturning, echoes.count, echoes.since
	case l.echo && echoes.count >= endlessLimit:
		e.Pattern, e.Writes, e.Since = PatternEndless, echoes.count, echoes.since
	case s.flip && k.flips.count >= flipLimit:
		e.Pattern, e.Writes, e.Since = PatternFlipping, k.flips.count, k.flips.since
	default:
		return false
	}
	return true
}

// describe sets the fields, the managers and the message.
func (e *Episode) describe(k *history, hides func(path string) bool, now time.Time) {
	onlyTimes := false
	if k != nil {
		onlyTimes = e.addFields(k, hides)
		e.Managers = slices.Clone(k.own)
		if e.Pattern == PatternUndone {
			for _, manager := range k.opposing {
				e.Managers = addManager(e.Managers, manager)
			}
		}
	}
	e.Message = e.message(k, onlyTimes, now.Sub(e.Since))
}

// addFields adds the fields of the pattern. It reports whether all of them are times.
func (e *Episode) addFields(k *history, hides func(path string) bool) (onlyTimes bool) {
	if hides == nil {
		hides = func(path string) bool { return (&apiobject.HiddenFields{}).Hides(e.Kind, path) }
	}
	onlyTimes = true
	for path, f := range k.fields {
		if e.Pattern == PatternUndone && f.undone.count == 0 || f.changes < 2 {
			continue
		}
		values := [2]string{f.last.From, f.last.To}
		if hides(f.last.Indexed) {
			values = [2]string{apiobject.HiddenText, apiobject.HiddenText}
		}
		e.Fields = append(e.Fields, FieldValues{Path: path, Values: values})
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
	switch e.Pattern {
	case PatternUndone:
		return fmt.Sprintf("%s: %d times %s the handler has written %s, and each time %s had changed it in between: "+
			"let only one of them write it", object, e.Writes, within, e.fields(), opponents(k))
	case PatternReturning:
		effect := "bring nothing new"
		if onlyTimes {
			effect = "change nothing but times"
		}
		return fmt.Sprintf("%s: %d writes %s were made by runs that only the key's own writes had caused, and "+
			"they %s (%s): "+
			"write only what differs, and leave Config.OwnWrites.Handle off",
			object, e.Writes, within, effect, e.fields())
	case PatternEndless:
		return fmt.Sprintf("%s: %d writes %s were made by runs that only the key's own writes had caused (%s): "+
			"write only what differs, and leave Config.OwnWrites.Handle off", object, e.Writes, within, e.fields())
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
