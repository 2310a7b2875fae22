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

// CauseType says what kind of thing put a key into the queue. The set is small and
// fixed, so that it can be a metric's label.
type CauseType string

// The types of causes.
const (
	// CauseListed: an object was in the first list after the start.
	CauseListed CauseType = "listed"
	// CauseAdded: an object was created, or came into the selection.
	CauseAdded CauseType = "added"
	// CauseUpdated: an object changed.
	CauseUpdated CauseType = "updated"
	// CauseDeleted: an object is gone.
	CauseDeleted CauseType = "deleted"
	// CauseResync: the resync interval since the last success has passed.
	CauseResync CauseType = "resync"
	// CauseRetry: the last run failed.
	CauseRetry CauseType = "retry"
	// CauseRequeue: the last run asked to be run again after a while.
	CauseRequeue CauseType = "requeue"
	// CauseTimer: a timer of the object (controller.SetTimer) has fired.
	CauseTimer CauseType = "timer"
	// CauseTriggered: a source enqueued the key for a reason of its own.
	CauseTriggered CauseType = "triggered"
)

// CauseTypes lists every CauseType, for whoever wants to show zeros.
func CauseTypes() []CauseType {
	return []CauseType{
		CauseListed, CauseAdded, CauseUpdated, CauseDeleted,
		CauseResync, CauseRetry, CauseRequeue, CauseTimer, CauseTriggered,
	}
}

// The sources that every controller has. Others have the names that they were given.
const (
	// SourceSelf is the Retriever: the controller's own objects.
	SourceSelf = "self"
	// SourceLoop is the loop itself: retries, requeues, resyncs, timers.
	SourceLoop = "loop"
)

// Cause is why a key is in the queue.
type Cause struct {
	Type CauseType
	// Source is the name of the source that enqueued the key: SourceSelf, SourceLoop, or a
	// name of a small fixed set, so that it can be a metric's label.
	Source string

	// Kind, Object and UID name the object whose change this is, and ResourceVersion its
	// state. Empty where no object is concerned.
	Kind            schema.GroupKind
	Object          kube.Key
	UID             types.UID
	ResourceVersion string
	// Changed is which parts of the object changed, for CauseUpdated. Where it has not been
	// compared yet, Difference will tell; Causes.List has asked it.
	Changed    kube.Change
	Difference *Difference `json:"-"`
	// Manager is the field manager that wrote the object last, where the object tells.
	Manager string
	// Previous is the resource version of the state that was known before, for CauseUpdated.
	Previous string

	// Attempt is how many runs in a row had failed, for CauseRetry.
	Attempt int
	// Detail says more, for people: the reason of a requeue, the name of a timer. May be empty.
	Detail string
	// Staleness is how long ago the informer of the controller's objects had last heard from
	// the API server, for causes that do not come from there.
	Staleness time.Duration

	// Time is when the (first of the) cause arose, and Count how often it did: causes of equal
	// Type, Source, Kind, Object and Detail are one. Of what differs otherwise, the last is
	// kept; of Changed, all.
	Time  time.Time
	Count int
}

// String returns the cause in a line: "updated (spec) by kubectl-edit", "updated 2 times
// (labels,spec) by kubectl", "owned deployments: Deployment shop/web updated (status)", "retry 3",
// "requeue (the reason)".
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

// Compared returns the cause with everything in Changed that Difference can tell.
func (c Cause) Compared() Cause {
	c.Changed |= c.Difference.Parts()
	c.Difference = nil
	return c
}

// same reports whether two causes are one.
func (c *Cause) same(d *Cause) bool {
	return c.Type == d.Type && c.Source == d.Source && c.Object == d.Object && c.Kind == d.Kind && c.Detail == d.Detail
}

// MaxCauses is how many different causes an item keeps; the others are counted.
const MaxCauses = 8

// Causes is a bounded set of causes in the order of their arrival.
type Causes struct {
	list    []Cause
	dropped int
}

// NewCauses returns a set of causes, for tests of what receives one.
func NewCauses(causes ...Cause) Causes {
	var c Causes
	for _, cause := range causes {
		c.add(&cause)
	}
	return c
}

// List returns the causes, oldest first, compared (see Cause.Compared). Do not change the slice.
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

// Only reports whether every cause is of one of these types.
func (c Causes) Only(types ...CauseType) bool {
	for i := range c.list {
		if !slices.Contains(types, c.list[i].Type) {
			return false
		}
	}
	return true
}

// Dropped is how many causes found no place in the set. One that comes again counts again.
func (c Causes) Dropped() int { return c.dropped }

// MarshalJSON returns the causes, and how many were dropped, as a JSON object.
func (c Causes) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		List    []Cause
		Dropped int
	}{c.List(), c.dropped})
}

// Has reports whether a cause of type t is in the set.
func (c Causes) Has(t CauseType) bool {
	return slices.ContainsFunc(c.list, func(cause Cause) bool { return cause.Type == t })
}

// String joins the causes with commas.
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

// add adds a cause, which it copies.
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

// again makes c the cause that came again as d.
func (c *Cause) again(d *Cause) {
	time, count, changed, difference := c.Time, c.Count, c.Changed, c.Difference
	*c = *d
	c.Time, c.Count, c.Changed = time, count+max(d.Count, 1), changed|d.Changed
	c.Difference = d.Difference.merged(difference)
}

// accepted reports whether accept accepts one of the causes, or there are some that it cannot see.
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
