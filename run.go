package evenkeel

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/status"
)

// Run is what a handler works with in one run for one object. It is valid until the handler returns.
type Run struct {
	// Client reads the children from their informers, while these run, and everything else from the API server.
	Client *client.Client
	// Children is the set of the children, for what Apply does not do: plans, a deletion in a teardown. It is nil
	// without Config.Owns.
	Children *owned.Set
	// States are further states that count for the conditions in the status, in addition to those of the children of
	// Apply: of something outside of the cluster, or of a report of Children. The handler appends to them.
	States []readiness.State

	owner   kube.Object
	status  func() (conditions *[]metav1.Condition, observedGeneration *int64) // nil without Config.Status
	commit  func(ctx context.Context) error
	report  owned.Report
	applied bool
}

// Apply makes desired the children of the object, and deletes its other children of the kinds of Config.Owns. See
// owned.Set.Apply. An owned.Child among them has settings of its own: a wave, or that it is only created. A second call
// in a run is an error, because the two would delete the children of each other. The conditions in the status tell the
// state of the children: while they are not ready at once, otherwise when the handler has returned, because it may have
// more to do.
func (r *Run) Apply(ctx context.Context, desired ...kube.Object) (owned.Report, error) {
	switch {
	case r.Children == nil:
		return owned.Report{}, errors.New("apply the children: set Config.Owns to their kinds")
	case r.applied:
		return owned.Report{}, errors.New("apply the children: this run has applied children already, and this call " +
			"would delete them: pass all of them to one call, those of later waves as owned.Child")
	}
	report, err := r.Children.Apply(ctx, r.owner, owned.Of(desired...)...)
	r.report, r.applied = report, true
	if err == nil && !report.Ready() {
		r.summarize()
	}
	return report, err
}

// check returns an error if Config.Status returns pointers to copies: nothing would be written.
func (r *Run) check() error {
	if r.status == nil {
		return nil
	}
	conditions, observed := r.status()
	if again, observedAgain := r.status(); conditions != again || observed != observedAgain {
		return errors.New("Config.Status returns other pointers for each call: return pointers into the object")
	}
	return nil
}

// summarize sets the state of the children in the status.
func (r *Run) summarize() {
	if r.status == nil {
		return
	}
	conditions, observed := r.status()
	if conditions != nil {
		status.Summarize(conditions, r.owner.GetGeneration(), append(r.report.States(), r.States...)...)
	}
	if observed != nil {
		*observed = r.owner.GetGeneration()
	}
}

// CommitStatus writes the status of the object now, for what must be known before the handler continues, such as the
// name of something outside of the cluster. See middleware.CommitStatus.
func (r *Run) CommitStatus(ctx context.Context) error { return r.commit(ctx) }
