package informer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
)

// listRequests decides how a part requests its next list: in pages or streamed, and as a consistent read or not.
//
// Invariant: after a reason to doubt the server's cache, every list is a consistent read until one has ended.
type listRequests struct {
	mu         sync.Mutex
	consistent bool // guarded by mu; the next list must not come from the server's cache
	// Guarded by mu. The part lists in pages until pagedUntil, for the duration paged, because a streamed list did not
	// end.
	pagedUntil time.Time
	paged      time.Duration
	broken     int       // guarded by mu; consecutive streamed lists that ended before the list did
	notBefore  time.Time // guarded by mu; the API server asked for no request before this time
}

// postpone respects the delay that the API server asked for with err. The jitter is added, because the API server asks
// all clients for the same delay.
func (r *listRequests) postpone(err error) {
	after := retryrules.ServerDelay(err)
	if after == 0 {
		return
	}
	until := time.Now().Add(after + time.Duration(rand.Float64()*backoffJitter*float64(after)))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notBefore.Before(until) {
		r.notBefore = until
	}
}

// wait waits until the time before which the API server asked for no request, or until ctx ends.
func (r *listRequests) wait(ctx context.Context) {
	r.mu.Lock()
	until := r.notBefore
	r.mu.Unlock()
	retryrules.Wait(ctx, time.Until(until))
}

// begin resets r for a session. The part still lists in pages if streamed lists did not end before.
func (r *listRequests) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consistent, r.broken, r.notBefore = false, 0, time.Time{}
}

// options makes opts request a consistent read if the server's cache may be stale, or if versions do not show how old a
// response is (perObject).
func (r *listRequests) options(opts metav1.ListOptions, perObject bool) metav1.ListOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consistent || perObject {
		opts.ResourceVersion = ""
	}
	return opts
}

// forceConsistent makes the next list a consistent read.
func (r *listRequests) forceConsistent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consistent = true
}

// refused makes the next list request no version if err reports a malformed list request. After an upgrade, an
// aggregated API server may not accept the versions that it returned before.
func (r *listRequests) refused(opts metav1.ListOptions, err error) {
	if opts.ResourceVersion != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)) {
		r.forceConsistent()
	}
}

// listed records the end of a list.
func (r *listRequests) listed(streamed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consistent, r.broken = false, 0
	if streamed {
		r.paged = 0
	}
}

// avoidStreams makes the part list in pages for some time, and returns that time.
func (r *listRequests) avoidStreams() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paged = min(max(2*r.paged, pagedLists), maxPagedLists)
	r.pagedUntil = time.Now().Add(r.paged)
	return r.paged
}

// streamBroke records that a streamed list ended before the list did. It reports whether lists must not be streamed
// now, after maxBrokenStreams of them in a row.
func (r *listRequests) streamBroke() (tooMany bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken++
	return r.broken >= maxBrokenStreams
}

// avoidsStreams reports whether the part lists in pages.
func (r *listRequests) avoidsStreams() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.pagedUntil)
}

// asksForNoHistory reports whether a request is for the present state. Such a request needs no history, so it has no
// fallback if the server reports that history is gone.
func asksForNoHistory(opts metav1.ListOptions) bool {
	return opts.ResourceVersion == "" && opts.Continue == ""
}
