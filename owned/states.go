package owned

import (
	"errors"

	"github.com/evenkeel-go/evenkeel/readiness"
)

// States returns the states of the desired children, what status.Summarize asks for; the message
// of each that is not ready names it. While the owner is being deleted there is one state. A child
// that could not be applied is Failed when its object belongs to somebody else (and is not about to
// go, as that of an earlier owner is), or fields of it cannot be changed, and otherwise InProgress,
// because the next run tries again.
//
//	status.Summarize(conditions, app.Generation, report.States()...)
func (r Report) States() []readiness.State {
	if r.OwnerTerminating {
		return []readiness.State{{Status: readiness.Terminating, Message: r.Pending()}}
	}
	var states []readiness.State
	for _, result := range r.Results {
		if result.Desired {
			states = append(states, result.state())
		}
	}
	return states
}

func (r Result) state() readiness.State {
	_, immutable := errors.AsType[*ImmutableError](r.Err)
	foreign, ok := errors.AsType[*ForeignError](r.Err)
	former := ok && foreign.Former
	switch {
	case r.Ready():
		return readiness.State{Status: readiness.Current}
	case r.Outcome == Foreign && !former, immutable:
		return readiness.State{Status: readiness.Failed, Message: r.pending()}
	case r.applied() && r.Readiness.Status == readiness.Failed:
		return readiness.State{Status: readiness.Failed, Message: r.pending()}
	}
	return readiness.State{Status: readiness.InProgress, Message: r.pending()}
}
