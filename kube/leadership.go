package kube

import (
	"context"
	"errors"

	"github.com/evenkeel-go/evenkeel/retry"
)

// ErrLeadershipLost is the cause (context.Cause) of a context that was cancelled because
// another process may hold the lease from now on.
//
// It tells apart the two ways in which work ends: after an ordinary stop a controller
// lets handlers finish for its drain time; after this cause it cancels them at once,
// because every further write could meet the new leader's.
//
// A write that is not sent for it (Cluster) fails with it too. That is no failure of the
// connection, in whose place it comes: its class is retry.Default.
var ErrLeadershipLost = retry.WithClass(errors.New("leadership lost"), retry.Default)

type leadershipKey struct{}

// WithLeadership returns a context for work that may be done only while a lease is held.
// lost is closed when the lease is lost. It is not the same as the context's end: after
// an ordinary stop the context has ended, work drains, and the lease can still be lost.
//
// Leader election calls it; user code has no need to.
func WithLeadership(ctx context.Context, lost <-chan struct{}) context.Context {
	return context.WithValue(ctx, leadershipKey{}, lost)
}

// LeadershipLost returns the channel that is closed when the lease, under which ctx was
// made, is lost. It is nil, and so never ready, when no lease is concerned.
func LeadershipLost(ctx context.Context) <-chan struct{} {
	lost, _ := ctx.Value(leadershipKey{}).(<-chan struct{})
	return lost
}
