package event

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

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
		r.about(obj, corev1.EventTypeNormal, reason, action, formatNote(format, args))
	}
}

// Warning records an event of type Warning about obj. See Normal.
func (r *Recorder) Warning(obj kube.Object, reason, action, format string, args ...any) {
	if r != nil {
		r.about(obj, corev1.EventTypeWarning, reason, action, formatNote(format, args))
	}
}

func formatNote(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// about records an event about obj. It keeps a reference to the object, not the object.
func (r *Recorder) about(obj kube.Object, eventType, reason, action, note string) {
	reference, err := r.reference(obj)
	if err == nil && reference.Name == "" {
		err = missingName(reference)
	}
	if err != nil {
		r.dropInvalid(err, reason, action)
		return
	}
	r.record(reference, sanitize(eventType, reason, action, note))
}

func missingName(reference corev1.ObjectReference) error {
	return fmt.Errorf("refer to a %s in an event: it has no name: with generateName use the object that "+
		"Create returned", reference.Kind)
}

// dropInvalid counts an event without a valid object, and logs it at most once in logInterval.
func (r *Recorder) dropInvalid(err error, reason, action string) {
	r.mu.Lock()
	r.stats.Dropped++
	logs := r.mayLog("invalid object")
	r.mu.Unlock()
	if logs {
		r.config.Cluster.Logger().Warn("invalid object in event", "error", err, "reason", reason, "action", action)
	}
}
