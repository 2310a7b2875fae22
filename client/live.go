package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Live reads obj from the API server: the state that the cluster agrees on now, from no cache
// of the server's either. T is any Object: typed, unstructured or metadata only, and what is
// read is of the same kind. obj is not changed; its namespace, name and uid say which object
// is meant.
//
// Options: IfUnchanged.
//
// Errors: ErrGone; ErrReplaced; ErrChanged, with IfUnchanged; kube.ErrNotServed when the cluster
// has no such kind (any longer), which says nothing about the object; an obj that has no uid,
// because it did not come from the cluster; otherwise what the request met.
func Live[T kube.Object](ctx context.Context, c *Client, obj T, options ...LiveOption) (T, error) {
	var none T
	s, err := newSettings(options)
	if err != nil {
		return none, fmt.Errorf("read: %w", err)
	}
	t, err := c.sameTarget(ctx, obj)
	if err != nil {
		return none, fmt.Errorf("read: %w", err)
	}
	live, err := readLive(ctx, t, obj, s)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", t, err)
	}
	return live, nil
}

// sameTarget is targetOf for what has to be the very object that obj was.
func (c *Client) sameTarget(ctx context.Context, obj kube.Object) (target, error) {
	t, err := c.targetOf(ctx, obj)
	if err == nil && obj.GetUID() == "" {
		err = fmt.Errorf("%s has no uid, so that nothing can tell whether it is still the same: use an object that was read from the cluster", t)
	}
	return t, err
}

// readLive reads the object, and checks that it is still the same as seen.
func readLive[T kube.Object](ctx context.Context, t target, seen T, s settings) (T, error) {
	var none T
	if s.unchanged && seen.GetResourceVersion() == "" {
		return none, errors.New("the object has no resourceVersion, so that nothing can tell whether it has changed")
	}
	live, err := get(ctx, t, settings{}, seen)
	switch {
	case err != nil:
		return none, err
	case live.GetUID() != seen.GetUID():
		return none, t.conflict(ErrReplaced, "the uid is %s, it was %s", live.GetUID(), seen.GetUID())
	case s.unchanged && live.GetResourceVersion() != seen.GetResourceVersion():
		return none, t.conflict(ErrChanged, "the resourceVersion is %s, it was %s", live.GetResourceVersion(), seen.GetResourceVersion())
	}
	return live, nil
}
