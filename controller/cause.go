package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// CauseType is the type of a cause. The set is small and fixed, so that it can be a metric label.
type CauseType string

// The types of causes.
const (
	// CauseListed: an object was in the first list after the start.
	CauseListed CauseType = "listed"
	// CauseAdded: an object was created, or entered the selection.
	CauseAdded CauseType = "added"
	// CauseUpdated: an object changed.
	CauseUpdated CauseType = "updated"
	// CauseDeleted: an object was deleted, or left the selection.
	CauseDeleted CauseType = "deleted"
	// CauseResync: the resync interval since the last success has passed.
	CauseResync CauseType = "resync"
	// CauseRetry: the last run failed.
	CauseRetry CauseType = "retry"
	// CauseRequeue: the last run requested another run after some time.
	CauseRequeue CauseType = "requeue"
	// CauseTimer: a timer of the object (SetTimer) has fired.
	CauseTimer CauseType = "timer"
	// CauseTriggered: a source enqueued the key for another reason.
	CauseTriggered CauseType = "triggered"
)

// The sources that every controller has. The names of other sources are set by the program.
const (
	// SourceSelf is the Retriever: the controller's own objects.
	SourceSelf = "self"
	// SourceLoop is the controller's loop: retries, requeues, resyncs, timers.
	SourceLoop = "loop"
)

// Cause is a reason why a key is in the queue.
type Cause struct {
	Type CauseType
	// Source is the name of the source that enqueued the key: SourceSelf, SourceLoop, or another name. It becomes a
	// metric label, so it must be one of a small fixed set.
	Source string

	// Kind, Object and UID identify the object that has changed, and ResourceVersion its state. They are empty for
	// causes without an object.
	Kind            schema.GroupKind
	Object          kube.Key
	UID             types.UID
	ResourceVersion string
	// Changed is the set of changed parts of the object, for CauseUpdated.
	Changed kube.ChangedParts
	// difference computes Changed on demand; see compared.
	difference *causeDifference
	// Manager is the field manager that wrote the object last, if known.
	Manager string
	// previous is the resource version of the previously known state, for CauseUpdated.
	previous string

	// Attempt is the number of consecutive failed runs, for CauseRetry.
	Attempt int
	// Detail is further text for people: the reason of a requeue, the name of a timer. It may be empty.
	Detail string
	// Staleness is the time since the informer of the controller's objects last received data from the API server, for
	// causes that do not come from that informer.
	Staleness time.Duration

	// Time is the time of the first occurrence of the cause, and Count the number of occurrences: causes with equal
	// Type, Source, Kind, Object and Detail are merged. Changed is then the union, and the other fields are those of
	// the last occurrence.
	Time  time.Time
	Count int
}

// String returns the cause as one line: "updated (spec) by kubectl-edit", "updated 2 times (labels,spec) by kubectl",
// "owned deployments: Deployment shop/web updated (status)", "retry 3", "requeue (the reason)".
func (c Cause) String() string {
	var s strings.Builder
	if c.Source != SourceSelf && c.Source != SourceLoop && c.Source != "" {
		s.WriteString(c.Source + ": ")
	}
	if c.Source != SourceSelf && c.Object != (kube.Key{}) {
		if c.Kind.Kind != "" && !strings.HasSuffix(c.Source, c.Kind.Kind) {
			s.WriteString(c.Kind.Kind + " ")
		}
		s.WriteString(c.Object.String() + " ")
	}
	s.WriteString(string(c.Type))
	if c.Count > 1 {
		fmt.Fprintf(&s, " %d times", c.Count)
	}
	if c.Type == CauseRetry && c.Attempt > 0 {
		fmt.Fprintf(&s, " %d", c.Attempt)
	}
	if changed := c.compared().Changed; c.Type == CauseUpdated && changed != 0 {
		s.WriteString(" (" + changed.Summary() + ")")
	}
	if c.Detail != "" {
		s.WriteString(" (" + c.Detail + ")")
	}
	if c.Manager != "" {
		s.WriteString(" by " + c.Manager)
	}
	return s.String()
}

// compared returns the cause with the result of difference in Changed.
func (c Cause) compared() Cause {
	c.Changed |= c.difference.Parts()
	c.difference = nil
	return c
}

// same reports whether two causes are merged.
func (c *Cause) same(d *Cause) bool {
	return c.Type == d.Type && c.Source == d.Source && c.Object == d.Object && c.Kind == d.Kind && c.Detail == d.Detail
}

// merge merges another occurrence d into c if they are the same cause.
func (c *Cause) merge(d Cause) bool {
	if !c.same(&d) {
		return false
	}
	since, count, changed, earlier := c.Time, c.Count, c.Changed, c.difference
	*c = d
	c.Time, c.Count, c.Changed = since, count+max(d.Count, 1), changed|d.Changed
	c.difference = d.difference.merged(earlier)
	return true
}
