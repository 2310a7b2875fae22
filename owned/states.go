package owned

import (
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// States returns the states of the desired children, and of undesired ones that could not be deleted, as the input of
// status.Summarize. The message of each state that is not ready names the child.
//
// A child that could not be applied or deleted is Failed if its error is persistent (it has a method Persistent()
// bool): its object belongs to another owner (but not to a former one), immutable fields must change, or the API server
// rejects it. Otherwise it is InProgress, because the next run tries again. While the owner is being deleted there is
// one state. The report of any other error of Apply has one state with that error.
//
//	status.Summarize(conditions, app.Generation, report.States()...)
func (r Report) States() []readiness.State {
	if r.failure != nil {
		return []readiness.State{{Status: readinessOf(r.failure), Message: r.failure.Error()}}
	}
	if r.OwnerTerminating {
		return []readiness.State{{Status: readiness.Terminating, Message: r.Pending()}}
	}
	var states []readiness.State
	for _, result := range r.Results {
		if result.Desired || result.isPending() {
			states = append(states, result.state())
		}
	}
	return states
}

func (r Result) state() readiness.State {
	switch {
	case r.isReady():
		return readiness.State{Status: readiness.Current}
	case r.Err != nil:
		return readiness.State{Status: readinessOf(r.Err), Message: r.pending()}
	case r.applied() && r.Readiness.Status == readiness.Failed:
		return readiness.State{Status: readiness.Failed, Message: r.pending()}
	}
	return readiness.State{Status: readiness.InProgress, Message: r.pending()}
}

// readinessOf returns Failed for an error that stays until a person changes something.
func readinessOf(err error) readiness.Status {
	if retryrules.Persistent(err) {
		return readiness.Failed
	}
	return readiness.InProgress
}
