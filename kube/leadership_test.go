package kube_test

import (
	"context"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestNoLeadershipIsNeverLost(t *testing.T) {
	t.Parallel()
	if lost := kube.LeadershipLost(t.Context()); lost != nil {
		t.Errorf("without a lease, LeadershipLost is %v, want a nil channel", lost)
	}
}

// Leadership and the context's end are two things: work that drains has a context that
// ended, and can still lose the lease.
func TestLeadershipOutlivesTheContext(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	ctx, cancel := context.WithCancel(kube.WithLeadership(t.Context(), lost))
	for name, ctx := range map[string]context.Context{"derived": ctx, "detached": context.WithoutCancel(ctx)} {
		select {
		case <-kube.LeadershipLost(ctx):
			t.Errorf("%s: leadership is lost from the start", name)
		default:
		}
	}
	cancel()
	select {
	case <-kube.LeadershipLost(ctx):
		t.Error("the end of the context counts as lost leadership")
	default:
	}
	close(lost)
	for name, ctx := range map[string]context.Context{"derived": ctx, "detached": context.WithoutCancel(ctx)} {
		select {
		case <-kube.LeadershipLost(ctx):
		default:
			t.Errorf("%s: the loss does not show", name)
		}
	}
}

func TestTheInnermostLeaseCounts(t *testing.T) {
	t.Parallel()
	outer, inner := make(chan struct{}), make(chan struct{})
	ctx := kube.WithLeadership(kube.WithLeadership(t.Context(), outer), inner)
	close(inner)
	select {
	case <-kube.LeadershipLost(ctx):
	default:
		t.Error("the inner lease is lost, and it does not show")
	}
}
