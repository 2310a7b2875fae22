// Package status writes the status of an object: it sets conditions, summarizes them in the condition types that tools
// understand, and commits all changes with one patch at the end of a run.
//
// A handler changes its copy of the object, and middleware.Status calls Commit at the end of the run.
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
//
// # Writes of the run
//
// The resourceVersion of the object that Commit gets as after must belong to its content. A handler that writes to the
// object itself may ignore the response or take over all of it (*obj = *response). In the second case Commit cannot
// distinguish the run's changes from those in the response: if one of these fields or conditions has changed again
// before a retry, it returns client.ErrChanged, and the run must be repeated. A change back to the value in before is
// not detected, and is overwritten.
package status
