package workqueue

import (
	"encoding/json"
	"fmt"
	"slices"
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
	// CauseTimer: a timer of the object (controller.SetTimer) has fired.
	CauseTimer CauseType = "timer"
	// CauseTriggered: a source enqueued the key for another reason.
	CauseTriggered CauseType = "triggered"
)

// CauseTypes returns every CauseType, for exporters that pre-register every label value.
func CauseTypes() []CauseType {
	return []CauseType{
		CauseListed, CauseAdded, CauseUpdated, CauseDeleted,
		CauseResync, CauseRetry, CauseRequeue, CauseTimer, CauseTriggered,
	}
}

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
	// Changed is the set of changed parts of the object, for CauseUpdated. If it is not known yet, Difference computes
	// it. Causes.List returns causes with the result.
	Changed    kube.ChangedParts
	Difference *Difference `json:"-"`
	// Manager is the field manager that wrote the object last, if known.
	Manager string
	// Previous is the resource version of the previously known state, for CauseUpdated.
	Previous string

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
	if changed := c.Compared().Changed; c.Type == CauseUpdated && changed != 0 {
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

// Compared returns the cause with the result of Difference in Changed.
func (c Cause) Compared() Cause {
	c.Changed |= c.Difference.Parts()
	c.Difference = nil
	return c
}

// same reports whether two causes are merged.
func (c *Cause) same(d *Cause) bool {
	return c.Type == d.Type && c.Source == d.Source && c.Object == d.Object && c.Kind == d.Kind && c.Detail == d.Detail
}

// MaxCauses is the maximum number of different causes of an item; further ones are only counted.
const MaxCauses = 8

// Causes is a bounded set of causes in the order of their arrival.
type Causes struct {
	list    []Cause
	dropped int
}

// NewCauses returns a set of causes.
func NewCauses(causes ...Cause) Causes {
	var c Causes
	for _, cause := range causes {
		c.add(&cause)
	}
	return c
}

// List returns the causes, oldest first, with the results of Cause.Compared. The caller must not change the slice.
func (c Causes) List() []Cause {
	if !slices.ContainsFunc(c.list, func(cause Cause) bool { return cause.Difference != nil }) {
		return c.list
	}
	all := make([]Cause, len(c.list))
	for i, cause := range c.list {
		all[i] = cause.Compared()
	}
	return all
}

// Add adds a cause, or merges it with an equal one.
func (c *Causes) Add(cause Cause) { c.add(&cause) }

// Only reports whether every cause has one of these types.
func (c Causes) Only(types ...CauseType) bool {
	for i := range c.list {
		if !slices.Contains(types, c.list[i].Type) {
			return false
		}
	}
	return true
}

// Dropped returns the number of causes that were dropped because the set was full. A repeated cause counts each time.
func (c Causes) Dropped() int { return c.dropped }

// MarshalJSON returns the causes and the number of dropped ones as a JSON object.
func (c Causes) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		List    []Cause
		Dropped int
	}{c.List(), c.dropped})
}

// Has reports whether the set contains a cause of type t.
func (c Causes) Has(t CauseType) bool {
	return slices.ContainsFunc(c.list, func(cause Cause) bool { return cause.Type == t })
}

// String returns the causes, separated by commas.
func (c Causes) String() string {
	words := make([]string, len(c.list), len(c.list)+1)
	for i, cause := range c.list {
		words[i] = cause.String()
	}
	if c.dropped > 0 {
		words = append(words, fmt.Sprintf("and %d more", c.dropped))
	}
	return strings.Join(words, ", ")
}

// add adds a copy of a cause.
func (c *Causes) add(cause *Cause) {
	for i := range c.list {
		if known := &c.list[i]; known.same(cause) {
			known.again(cause)
			return
		}
	}
	if len(c.list) == MaxCauses {
		c.dropped++
		return
	}
	c.list = append(c.list, *cause)
	last := &c.list[len(c.list)-1]
	last.Count = max(last.Count, 1)
}

// again merges another occurrence d into c.
func (c *Cause) again(d *Cause) {
	time, count, changed, difference := c.Time, c.Count, c.Changed, c.Difference
	*c = *d
	c.Time, c.Count, c.Changed = time, count+max(d.Count, 1), changed|d.Changed
	c.Difference = d.Difference.merged(difference)
}

// accepted reports whether accept returns true for one of the causes, or some were dropped.
func (c *Causes) accepted(accept func(Cause) bool) bool {
	return accept != nil && (c.dropped > 0 || slices.ContainsFunc(c.list, func(cause Cause) bool { return accept(cause.Compared()) }))
}

// addAll adds the causes of another set.
func (c *Causes) addAll(other *Causes) {
	for i := range other.list {
		c.add(&other.list[i])
	}
	c.dropped += other.dropped
}

func (c *Causes) clone() Causes { return Causes{slices.Clone(c.list), c.dropped} }
