package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel-go/evenkeel/controller/internal/detect"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// Causes are the causes of a run in the order of their arrival: up to 8 different ones. Further ones are only counted.
type Causes struct {
	list workqueue.Causes[Cause]
}

// NewCauses returns Causes with the given ones.
func NewCauses(causes ...Cause) Causes {
	var c Causes
	for i := range causes {
		c.add(causes[i])
	}
	return c
}

// List returns the causes, oldest first. The caller must not change the slice.
func (c Causes) List() []Cause {
	list := c.list.List()
	if !slices.ContainsFunc(list, func(cause Cause) bool { return cause.difference != nil }) {
		return list
	}
	all := make([]Cause, len(list))
	for i, cause := range list {
		all[i] = cause.compared()
	}
	return all
}

// FirstType returns the type of the oldest cause, or "" if there is none.
func (c Causes) FirstType() CauseType {
	if list := c.list.List(); len(list) > 0 {
		return list[0].Type
	}
	return ""
}

// Has reports whether one of the causes has type t.
func (c Causes) Has(t CauseType) bool {
	return slices.ContainsFunc(c.list.List(), func(cause Cause) bool { return cause.Type == t })
}

// String returns the causes, separated by commas.
func (c Causes) String() string {
	list := c.list.List()
	words := make([]string, len(list), len(list)+1)
	for i, cause := range list {
		words[i] = cause.String()
	}
	if n := c.list.Dropped(); n > 0 {
		words = append(words, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(words, ", ")
}

// MarshalJSON returns the causes and the number of dropped ones as a JSON object.
func (c Causes) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		List    []Cause
		Dropped int
	}{c.List(), c.list.Dropped()})
}

// add adds a cause, or merges it with the same one.
func (c *Causes) add(cause Cause) {
	cause.Count = max(cause.Count, 1)
	c.list.Add(cause, (*Cause).merge)
}

// only reports whether every cause has one of these types.
func (c Causes) only(types ...CauseType) bool {
	return !slices.ContainsFunc(c.list.List(), func(cause Cause) bool { return !slices.Contains(types, cause.Type) })
}

// detectCauses converts causes for the hot loop detector. dropped reports whether some causes were dropped.
func detectCauses(c Causes) (causes []detect.Cause, dropped bool) {
	causes = make([]detect.Cause, 0, len(c.list.List()))
	for i := range c.list.List() {
		cause := &c.list.List()[i]
		causes = append(causes, detect.Cause{
			Changed:  cause.Type == CauseUpdated || cause.Type == CauseAdded,
			External: cause.Type == CauseTriggered, Resync: cause.Type == CauseResync,
			Kind: cause.Kind, Object: cause.Object, ResourceVersion: cause.ResourceVersion,
		})
	}
	return causes, c.list.Dropped() > 0
}

// without returns a copy without the causes that are the same as cause.
func (c Causes) without(cause *Cause) workqueue.Causes[Cause] {
	return c.list.Without(func(other Cause) bool { return cause.same(&other) })
}
