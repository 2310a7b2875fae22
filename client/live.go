package client

import (
	"context"
	"errors"

	"github.com/evenkeel-go/evenkeel/kube"
)

// GetLive reads obj from the API server: the most recent state, not from a cache of the server. T is any Object:
// typed, unstructured or metadata only; the result has the same type. GetLive does not change obj; its namespace,
// name and uid identify the object.
//
// Options: IfUnchanged.
//
// Errors: ErrGone; ErrReplaced; ErrChanged, with IfUnchanged; kube.ErrNotServed if the cluster does not serve
// the kind, so that the state of the object is unknown; an obj without a uid, because it was not read from the
// cluster; otherwise the error of the request.
func GetLive[T kube.Object](ctx context.Context, c *Client, obj T, options ...ReadOption) (T, error) {
	t, err := begin(ctx, c, "read", obj, options, "IfUnchanged")
	if err != nil {
		var none T
		return none, err
	}
	live, err := readLive(ctx, t, obj)
	return live, t.failed(err)
}

// readLive reads the object, and checks that it is the same one as seen.
func readLive[T kube.Object](ctx context.Context, t target, seen T) (T, error) {
	var none T
	switch {
	case seen.GetUID() == "":
		return none, errors.New("it has no uid, which identifies it: use an object that was read from the cluster")
	case t.unchanged && seen.GetResourceVersion() == "":
		return none, errors.New("the object has no resourceVersion, so a change cannot be detected")
	}
	live, err := get(ctx, t, seen)
	switch {
	case err != nil:
		return none, err
	case live.GetUID() != seen.GetUID():
		return none, t.conflict(ErrReplaced, "the uid is %s, it was %s", live.GetUID(), seen.GetUID())
	case t.unchanged && live.GetResourceVersion() != seen.GetResourceVersion():
		return none, t.conflict(ErrChanged, "the resourceVersion is %s, it was %s", live.GetResourceVersion(),
			seen.GetResourceVersion())
	}
	return live, nil
}
