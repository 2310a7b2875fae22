// Package status writes the status of an object: it sets conditions, summarizes them in the condition types that tools
// understand, and commits all changes with one patch at the end of a run.
//
// A handler changes its copy of the object. middleware.Status calls Commit at the end of the run:
//
//	func handle(ctx context.Context, shop *Shop) error {
//		status.SetReconciling(&shop.Status.Conditions, shop.Generation, "Deploying", "1 of 3 replicas is up")
//		...
//		status.SetReady(&shop.Status.Conditions, shop.Generation, "Deployed", "3 replicas are up")
//		return nil
//	}
//
// Only Commit and CommitLocked make requests, and only if the status has changed. CommitLocked, or
// middleware.CommitStatus, writes during a run what must be recorded before the run continues.
//
// With package owned, Summarize sets the conditions from the states of the children (owned.Report.States).
//
// # Condition ownership
//
// Each condition type belongs to one controller. Several controllers may have conditions in one list: Commit writes
// those that the run has changed, and no others.
package status
