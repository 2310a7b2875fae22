package kube

import (
	"context"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// ErrLeadershipLost is the cause (context.Cause) of a context that was cancelled because another process may hold the
// lease from now on.
//
// It distinguishes the two ways in which work ends: after an ordinary stop a controller lets handlers finish for its
// drain time; with this cause it cancels them at once, because a further write could conflict with those of the new
// leader.
//
// A Cluster also returns it for a write that it does not send for this reason, or that the loss cancels. The class of
// such an error is retry.Default, not that of a connection failure.
var ErrLeadershipLost = leadership.ErrLost

// UntilLeadershipLost returns a context for work that may continue after ctx has ended, for example the removal of a
// finalizer. It has the values of ctx, and no deadline. It is cancelled by cancel, which the caller must call, or with
// the cause ErrLeadershipLost: when the leadership in ctx ends, or if ctx ends with this cause.
//
// Use it instead of context.WithoutCancel. With the latter, writes are refused after a loss too, but other work
// continues.
func UntilLeadershipLost(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	return leadership.UntilLost(ctx)
}
