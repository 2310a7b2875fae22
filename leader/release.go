package leader

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
)

// releaseTimeout bounds the attempts to release the lease. Together with a controller's default drain time it fits into
// a Pod's default termination grace period, 30 s.
const releaseTimeout = 5 * time.Second

// release removes the holder of the lease if it is this Elector. Work and renewals must have ended.
func (e *Elector) release(ctx context.Context) {
	timeout := min(releaseTimeout, e.config.RenewDeadline)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		request, cancelRequest := context.WithTimeout(ctx, timeout/2)
		released, err := e.tryRelease(request)
		e.disconnectAfter(request, err)
		cancelRequest()
		if err == nil {
			if released {
				e.mu.Lock()
				e.leader = ""
				e.unlock()
				e.logger.InfoContext(ctx, "leadership released")
			}
			return
		}
		if !retryrules.Wait(ctx, min(e.config.RetryPeriod, time.Second)) {
			e.logger.WarnContext(ctx, "leadership not released, other processes wait until the lease expires",
				"error", err, "leaseDuration", e.config.LeaseDuration)
			return
		}
	}
}

// tryRelease removes the holder. It returns false without an error if the holder is not this Elector.
func (e *Elector) tryRelease(ctx context.Context) (bool, error) {
	for {
		lease, err := e.leases.get(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("get lease %s: %w", e.lease, err)
		}
		e.mu.Lock()
		isOwner := e.owns(&lease.Spec)
		e.unlock()
		if !isOwner {
			return false, nil
		}
		// The API rejects a duration of zero; client-go's elector writes 1 s too.
		setHolder(&lease.Spec, "", time.Second, false)
		_, err = e.leases.update(ctx, lease)
		switch {
		case apierrors.IsConflict(err):
			continue // probably a last renewal whose response was not awaited
		case err != nil:
			return false, fmt.Errorf("update lease %s: %w", e.lease, err)
		}
		return true, nil
	}
}
