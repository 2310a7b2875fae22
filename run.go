package evenkeel

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/status"
)

// Run is what a handler works with in one run for one object. It is valid until the handler returns.
type Run struct {
	// Client reads the children from their informers and everything else from the API server.
	Client *client.Client
	// Children is the set of the children, for what Apply does not do: waves, plans, a deletion in a teardown. It is
	// nil without Config.Owns.
	Children *owned.Set

	owner   kube.Object
	status  func() (conditions *[]metav1.Condition, observedGeneration *int64) // nil without Config.Status
	commit  func(ctx context.Context) error
	report  owned.Report
	applied bool
}

// Apply makes desired the children of the object, and deletes its other children of the kinds of Config.Owns. See
// owned.Set.Apply. The conditions in the status tell the state of the children of the last call: while they are not
// ready at once, otherwise when the handler has returned, because it may have more to do.
func (r *Run) Apply(ctx context.Context, desired ...kube.Object) (owned.Report, error) {
	if r.Children == nil {
		return owned.Report{}, errors.New("apply the children: set Config.Owns to their kinds")
	}
	report, err := r.Children.Apply(ctx, r.owner, owned.Of(desired...)...)
	r.report, r.applied = report, true
	if err == nil && !report.Ready() {
		r.summarize()
	}
	return report, err
}

// summarize sets the state of the children in the status.
func (r *Run) summarize() {
	if r.status == nil {
		return
	}
	conditions, observed := r.status()
	if conditions != nil {
		status.Summarize(conditions, r.owner.GetGeneration(), r.report.States()...)
	}
	if observed != nil {
		*observed = r.owner.GetGeneration()
	}
}

// CommitStatus writes the status of the object now, for what must be known before the handler continues, such as the
// name of something outside of the cluster. See middleware.CommitStatus.
func (r *Run) CommitStatus(ctx context.Context) error { return r.commit(ctx) }
