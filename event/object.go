package event

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Entry contains all fields of an event for Record.
type Entry struct {
	// Regarding is the object that the event is about. Required.
	Regarding kube.Object
	// Related is a second object, such as the Pod that was created for a Job. Default: none.
	Related kube.Object
	// Warning selects the event type Warning. Default: Normal.
	Warning bool
	// Reason is why the event was recorded, and Action what the controller did. Both are CamelCase words for
	// programs. If one is empty, the other one replaces it.
	Reason, Action string
	// Note is a description for people.
	Note string
	// Annotations are those of the Event. The annotations of repeats are ignored. Default: none.
	Annotations map[string]string
}

// Normal records an event of type Normal about obj. reason (what happened) and action (what the controller did)
// are CamelCase words for programs. format and args are the note, formatted by fmt.Sprintf; without args format
// is used unchanged.
//
//	events.Normal(website, "Published", "Publish", "serves at %s", url)
//
// Like Event, it never blocks and never fails, counts repeats, and does nothing for a nil Recorder. If obj has no
// name or a kind that is not in the Cluster's scheme, the Recorder drops the event and logs a warning.
func (r *Recorder) Normal(obj kube.Object, reason, action, format string, args ...any) {
	if r != nil {
		r.Record(Entry{Regarding: obj, Reason: reason, Action: action, Note: formatNote(format, args)})
	}
}

// Warning records an event of type Warning about obj. See Normal.
func (r *Recorder) Warning(obj kube.Object, reason, action, format string, args ...any) {
	if r != nil {
		r.Record(Entry{Regarding: obj, Warning: true, Reason: reason, Action: action, Note: formatNote(format, args)})
	}
}

func formatNote(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// Record records entry. See Normal. Two events with different Related objects are not repeats. It keeps references
// to the objects, not the objects.
func (r *Recorder) Record(entry Entry) {
	if r == nil {
		return
	}
	regarding, err := r.reference(entry.Regarding)
	if err != nil {
		r.dropInvalid(err, entry.Reason, entry.Action)
		return
	}
	var related corev1.ObjectReference
	if !usercode.IsNil(entry.Related) {
		if related, err = r.reference(entry.Related); err != nil {
			r.logInvalid(err, entry.Reason, entry.Action) // and record the event without it
		}
	}
	eventType := corev1.EventTypeNormal
	if entry.Warning {
		eventType = corev1.EventTypeWarning
	}
	r.record(regarding, sanitize(eventType, entry.Reason, entry.Action, entry.Note), related, entry.Annotations)
}

func (r *Recorder) reference(obj kube.Object) (corev1.ObjectReference, error) {
	reference, err := Regarding(r.config.Cluster, obj)
	if err == nil && reference.Name == "" {
		return corev1.ObjectReference{}, missingName(reference)
	}
	return reference, err
}

func missingName(reference corev1.ObjectReference) error {
	return fmt.Errorf("refer to a %s in an event: it has no name: with generateName use the object that "+
		"Create returned", reference.Kind)
}

// dropInvalid counts and logs an event without a valid object.
func (r *Recorder) dropInvalid(err error, reason, action string) {
	r.mu.Lock()
	r.stats.Dropped++
	r.mu.Unlock()
	r.logInvalid(err, reason, action)
}

// logInvalid logs an invalid object, at most once in logInterval.
func (r *Recorder) logInvalid(err error, reason, action string) {
	r.mu.Lock()
	logs := r.mayLog("invalid object")
	r.mu.Unlock()
	if logs {
		r.config.Cluster.Logger().Warn("invalid object in event", "error", err, "reason", reason, "action", action)
	}
}
