package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Pattern is what a hot loop looks like.
//
// Not called a hot loop, because they do no harm or have a reason outside: runs that write
// nothing, however many; drift that is repaired now and then; many objects written once each;
// progress that is written again and again, by runs that a timer, a requeue or the progress of
// other objects has caused; a status that follows something that flaps; times that are written
// for each event (heartbeats). Nor are retries and requeues: they have a pace of their own.
type Pattern string

// The patterns.
const (
	// PatternUndone: the key has written the same value into the same field at least five times
	// within the window, and each time somebody else had changed it in between. Times do not
	// count. The causes of the runs do not matter. (A flag that the handler sets and somebody else
	// takes away, again and again, looks the same.)
	PatternUndone Pattern = "undone"
	// PatternReturning: nothing but the key's own writes has caused its runs, and they have written
	// the same, at least five times in a row: A, B, A, B, or the same with another time in it.
	PatternReturning Pattern = "returning"
	// PatternEndless: nothing but the key's own writes has caused its runs, 300 writes of the object
	// in a row within the window, whatever they wrote.
	PatternEndless Pattern = "endless"
	// PatternFlipping: 30 runs within the window, each after others had changed the object in some
	// way, have written what an earlier run had written, and the run before something else: two
	// parts of the handler disagree, and what others do about it keeps it going. (A status that
	// mirrors a field of its own object, which others flip as often, looks the same.)
	PatternFlipping Pattern = "flipping"
)

const (
	// maxEpisodeFields is how many fields an Episode names.
	maxEpisodeFields = 8
	// maxValue is how much of a value it shows, in bytes.
	maxValue = 40
)

// Episode is a hot loop of one key.
type Episode struct {
	Pattern Pattern
	Key     kube.Key
	// Kind and Object name the object that is written again and again.
	Kind   schema.GroupKind
	Object kube.Key
	// Fields are those that go back and forth, by path: at most eight. MoreFields is how many
	// others there are. Empty when the object's states could not be compared.
	Fields     []FieldValues
	MoreFields int
	// Managers are the field managers that write them, the key's own first. The others are those
	// that were seen to undo what the key wrote; there may be some that were not seen.
	Managers []string
	// Writes is how many writes were counted, and Since when the counting began.
	Writes int
	Since  time.Time
	// Message is a sentence that says what happens and what to look at.
	Message string
}

// FieldValues is a field and the last two values that it had: what the key found, and what it
// wrote. Values are JSON, cut to some 40 bytes; those of Secrets are not shown.
type FieldValues struct {
	Path   string
	Values [2]string
}

// episode is one that lasts.
type episode struct {
	Episode
	sign   time.Time // the last sign of it
	pause  time.Duration
	raised time.Time // when the pause was raised last
}

// judge notes what a write has changed, and begins an episode when that settles it.
func (h *HotLoops) judge(l *look, w *Step, d difference, now time.Time) (Episode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tr, ok := h.tracks.peek(l.id); !ok || tr != l.track || tr.history != l.history {
		return Episode{}, false // forgotten meanwhile
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
	found.describe(l.history, now)
	return found, h.begin(found, now)
}

// note adds a write to the history of its object.
func (h *HotLoops) note(l *look, w *Step, d difference, now time.Time) (s signs) {
	k := l.history
	if older(w.After.ResourceVersion, k.version) {
		d.known = false // two writes at once: their order is lost
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

// decide fills in the pattern, if there is one.
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

// describe fills in what a pattern's reader needs.
func (e *Episode) describe(k *history, now time.Time) {
	onlyTimes := false
	if k != nil {
		onlyTimes = e.addFields(k)
		e.Managers = slices.Clone(k.own)
		if e.Pattern == PatternUndone {
			for _, manager := range k.opposing {
				e.Managers = addManager(e.Managers, manager)
			}
		}
	}
	e.Message = e.message(k, onlyTimes, now.Sub(e.Since))
}

// addFields adds the fields that the pattern is about.
func (e *Episode) addFields(k *history) (onlyTimes bool) {
	onlyTimes = true
	for path, f := range k.fields {
		if e.Pattern == PatternUndone && f.undone.count == 0 || f.changes < 2 {
			continue
		}
		values := [2]string{f.last.From, f.last.To}
		if e.Kind.Kind == "Secret" {
			values = [2]string{"(hidden)", "(hidden)"}
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
		nothing := "bring nothing new"
		if onlyTimes {
			nothing = "change nothing but times"
		}
		return fmt.Sprintf("%s: %d writes %s were made by runs that only the key's own writes had caused, and they %s (%s): "+
			"write only what differs, and leave Config.OwnWrites.Handle off",
			object, e.Writes, within, nothing, e.fields())
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

// fields names the fields with their values, for the message.
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

// opponents names who undoes what a key writes.
func opponents(k *history) string {
	if len(k.opposing) == 0 {
		return "somebody else"
	}
	var words []string
	for _, manager := range k.opposing {
		if slices.Contains(k.own, manager) {
			manager += " (the same name as the handler's: another key that writes the object, or another copy of the program)"
		}
		words = append(words, manager)
	}
	return strings.Join(words, ", ")
}

// shorten makes a change's values fit into a message.
func shorten(c FieldChange) FieldChange {
	return FieldChange{Path: c.Path, From: shortValue(c.From), To: shortValue(c.To)}
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
