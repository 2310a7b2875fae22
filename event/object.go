package event

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Entry is an event in full, for Record.
type Entry struct {
	// Regarding is the object that the event is about. Required.
	Regarding kube.Object
	// Related is a second object that has to do with it: the Pod that was made for a Job.
	// Default: none.
	Related kube.Object
	// Warning is true for what somebody should look at. Default: a normal event.
	Warning bool
	// Reason is what happened, a CamelCase word for machines, and Action what was done about it,
	// the same. One stands in for the other.
	Reason, Action string
	// Note says more to people.
	Note string
	// Annotations are those of the Event; of one that is repeated, those that came first.
	// Default: none.
	Annotations map[string]string
}

// Normal says of obj that something went as it should: reason and action are CamelCase words
// for machines (what happened, and what was done about it), the rest is a note for people,
// formatted as fmt.Sprintf does; without args it is taken as it is.
//
//	events.Normal(website, "Published", "Publish", "serves at %s", url)
//
// As Event, it never blocks and never fails, what is said again becomes a count, and a nil
// Recorder says nothing. Of an object whose kind the Cluster does not know, or that has no name
// yet, nothing is said but a line in the log.
func (r *Recorder) Normal(obj kube.Object, reason, action, format string, args ...any) {
	if r != nil {
		r.Record(Entry{Regarding: obj, Reason: reason, Action: action, Note: noteOf(format, args)})
	}
}

// Warning says of obj that something did not go as it should. See Normal.
func (r *Recorder) Warning(obj kube.Object, reason, action, format string, args ...any) {
	if r != nil {
		r.Record(Entry{Regarding: obj, Warning: true, Reason: reason, Action: action, Note: noteOf(format, args)})
	}
}

func noteOf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// Record says what entry says. See Normal; an event whose Related is another object is no repeat.
// It reads the objects, and keeps nothing of them but a reference.
func (r *Recorder) Record(entry Entry) {
	if r == nil {
		return
	}
	regarding, err := r.reference(entry.Regarding)
	if err != nil {
		r.dropMistake(err, entry.Reason, entry.Action)
		return
	}
	var related corev1.ObjectReference
	if !kube.IsNil(entry.Related) {
		if related, err = r.reference(entry.Related); err != nil {
			r.logMistake(err, entry.Reason, entry.Action) // and say the rest
		}
	}
	eventType := corev1.EventTypeNormal
	if entry.Warning {
		eventType = corev1.EventTypeWarning
	}
	r.say(regarding, acceptable(eventType, entry.Reason, entry.Action, entry.Note), related, entry.Annotations)
}

func (r *Recorder) reference(obj kube.Object) (corev1.ObjectReference, error) {
	reference, err := Regarding(r.config.Cluster, obj)
	if err == nil && reference.Name == "" {
		return corev1.ObjectReference{}, unnamed(reference)
	}
	return reference, err
}

func unnamed(reference corev1.ObjectReference) error {
	return fmt.Errorf("refer to a %s in an event: it has no name: one that the API server makes is known after the object was created", reference.Kind)
}

// dropMistake drops what cannot be said of anything.
func (r *Recorder) dropMistake(err error, reason, action string) {
	r.mu.Lock()
	r.stats.Dropped++
	r.mistakes++
	r.mu.Unlock()
	r.logMistake(err, reason, action)
}

// logMistake logs a mistake of the caller's, of which there may be many.
func (r *Recorder) logMistake(err error, reason, action string) {
	now := time.Now()
	r.mu.Lock()
	logged := !r.mistaken.IsZero() && now.Sub(r.mistaken) < logInterval
	if !logged {
		r.mistaken = now
	}
	r.mu.Unlock()
	if !logged {
		r.config.Logger.Warn("an object cannot be referred to in events", "error", err, "reason", reason, "action", action)
	}
}
