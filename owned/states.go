package owned

import (
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/retry"
)

// States returns the states of the desired children, and of those that could not be deleted, what
// status.Summarize asks for; the message of each that is not ready names it. While the owner is being
// deleted there is one state. A child that could not be applied, or deleted, is Failed when its error is persistent (retry.Persistent): its object belongs
// to somebody else (and not to an earlier owner), fields of it cannot be changed, or the API server
// does not accept it. Otherwise it is InProgress, because the next run tries again. The report that
// comes with any other error of Apply has one state, with that error.
//
//	status.Summarize(conditions, app.Generation, report.States()...)
func (r Report) States() []readiness.State {
	if r.failure != nil {
		return []readiness.State{{Status: statusOf(r.failure), Message: r.failure.Error()}}
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
		return readiness.State{Status: statusOf(r.Err), Message: r.pending()}
	case r.applied() && r.Readiness.Status == readiness.Failed:
		return readiness.State{Status: readiness.Failed, Message: r.pending()}
	}
	return readiness.State{Status: readiness.InProgress, Message: r.pending()}
}

// statusOf returns Failed for an error that stays until somebody changes something.
func statusOf(err error) readiness.Status {
	if retry.Persistent(err) {
		return readiness.Failed
	}
	return readiness.InProgress
}
