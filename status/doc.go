// Package status is for what a controller says of an object in the object's status: conditions,
// a summary of them that tools understand, and one write at the end of a run.
//
// A handler edits its copy of the object, and leaves the writing to middleware.Status, or to
// Commit:
//
//	func handle(ctx context.Context, shop *Shop) error {
//		status.SetReconciling(&shop.Status.Conditions, shop.Generation, "Deploying", "1 of 3 replicas is up")
//		...
//		status.SetReady(&shop.Status.Conditions, shop.Generation, "Deployed", "3 replicas are up")
//		return nil
//	}
//
// Nothing of this makes a request but Commit, and Commit makes none when nothing has changed. What has
// to be noted before a run goes on is written by middleware.CommitStatus, or CommitLocked.
//
// # Who may write which condition
//
// Each condition type belongs to one controller, and several controllers may have theirs in one
// list. Commit writes those that the run has changed, and no others.
package status
