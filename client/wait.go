package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// defaultWaitTimeout is the default of Timeout.
const defaultWaitTimeout = 5 * time.Minute

// ErrFailed means that the check of WaitFor found the object Failed: waiting does not help.
var ErrFailed = errors.New("the object has failed")

// WaitFor waits until the object with key exists and check finds it Current. It returns that object, which belongs
// to the caller.
//
//	deployment, err := client.WaitFor[*appsv1.Deployment](ctx, c, key, readiness.Of,
//		client.Timeout(time.Minute))
//
// For a custom resource with a condition Ready use readiness.Ready: unlike readiness.Condition, it ends the
// wait at once if the object is Stalled.
//
// WaitFor is for sequential programs: installers, migrations, tests. In a handler it would block a worker: return
// controller.RequeueAfter instead or, better, let the controller watch the object. WaitFor lists the object, which is
// one request if it is Current already, and then watches it. When the watch ends, it starts again; after failures it
// pauses, up to 10 s (longer if the API server asks for it). It does not poll, and never reads from informers, which
// may show the state before the awaited change. It also waits for a kind that is not served yet, because its
// CustomResourceDefinition was just created.
//
// It needs the verbs list and watch; a Role may limit both to the object's name (resourceNames).
//
// Options: OfKind, Timeout.
//
// Errors, which contain the last reason why the object was not ready:
//   - context.DeadlineExceeded after Timeout, or the deadline of ctx;
//   - ErrFailed, immediately, if the check finds the object Failed;
//   - an error of the API server, immediately, if a retry would not help: reading is forbidden, or the request
//     is invalid.
func WaitFor[T kube.Object](
	ctx context.Context, c *Client, key kube.Key, check readiness.Check, options ...WaitOption,
) (T, error) {
	var none T
	s, err := newSettings(options, "OfKind, Timeout")
	err = errors.Join(err, c.check())
	switch {
	case err != nil:
	case check == nil:
		err = errors.New("the check is nil: readiness.Of is one for all kinds")
	case key.Name == "":
		err = errors.New("the key has no name")
	}
	if err != nil {
		name := key.String()
		if key.Name == "" {
			name = "a " + reflect.TypeFor[T]().String()
		}
		return none, fmt.Errorf("wait for %s: %w", name, err)
	}
	w := &waiting[T]{what: "wait for", name: key.String()}
	w.resolve = func(ctx context.Context) (target, error) { return targetFor[T](ctx, c, key, s) }
	w.judge = func(obj T) counted[T] {
		state := check(obj)
		one := counted[T]{object: obj, awaited: state.Ready(), reason: state.String()}
		if state.Status == readiness.Failed {
			one.failed = fmt.Errorf("%w: %s", ErrFailed, state.Message)
		}
		return one
	}
	w.isOver = func() bool { return w.awaited > 0 }
	w.explain = func() string { return cmp.Or(w.found[w.key].reason, "it does not exist") }
	if err := w.run(ctx, s.timeout); err != nil {
		return none, err
	}
	return w.found[w.key].object, nil
}

// WaitDeleted waits until obj is deleted: until no object of its kind and key exists, or one with another uid. It
// deletes nothing, and reads metadata only. See WaitFor for its flow.
//
// Pass an obj that was read before the deletion, because WaitDeleted needs its uid:
//
//	deployment, err := client.Get[*appsv1.Deployment](ctx, c, key)
//	...
//	err = client.Delete(ctx, c, deployment)
//	...
//	err = client.WaitDeleted(ctx, c, deployment, client.Timeout(time.Minute))
//
// Options: OfKind, for an obj that does not carry its kind; Timeout.
//
// Errors: context.DeadlineExceeded after the timeout, with the finalizers that hold the object, or the fact
// that no client has deleted it. kube.ErrNotServed, immediately, if the cluster does not serve the kind, so
// that the state of the object is unknown. An obj without a name or a uid. Otherwise as WaitFor.
func WaitDeleted(ctx context.Context, c *Client, obj kube.Object, options ...WaitOption) error {
	s, err := newSettings(options, "OfKind, Timeout")
	err = errors.Join(err, c.check())
	switch {
	case err != nil:
	case usercode.IsNil(obj):
		err = errors.New("the object is nil")
	case obj.GetName() == "":
		err = errors.New("the object has no name")
	case obj.GetUID() == "":
		err = fmt.Errorf("%s has no uid, so it cannot be identified: use an object that was read from the cluster",
			kube.KeyOf(obj))
	}
	if err != nil {
		return fmt.Errorf("wait for a deletion: %w", err)
	}
	type metadata = *metav1.PartialObjectMetadata
	w := &waiting[metadata]{what: "wait for the deletion of", name: kube.KeyOf(obj).String(), mustBeServed: true}
	w.resolve = func(ctx context.Context) (target, error) {
		if s.kind.Empty() {
			if s.kind, err = c.Cluster().KindOf(obj); err != nil {
				return target{}, fmt.Errorf("%s: %w", kube.KeyOf(obj), err)
			}
		}
		return targetFor[metadata](ctx, c, kube.KeyOf(obj), s)
	}
	w.judge = func(live metadata) counted[metadata] {
		return counted[metadata]{awaited: live.UID != obj.GetUID(), reason: holds(live.ObjectMeta, obj.GetUID())}
	}
	w.isOver = func() bool { return len(w.found) == w.awaited }
	w.explain = func() string { return w.found[w.key].reason }
	return w.run(ctx, s.timeout)
}

// holds returns the reason why an object still exists.
func holds(meta metav1.ObjectMeta, uid types.UID) string {
	switch {
	case meta.DeletionTimestamp == nil:
		return fmt.Sprintf("it still exists (uid %s), and was not deleted", uid)
	case len(meta.Finalizers) > 0:
		return fmt.Sprintf("it is being deleted since %s, held by finalizers %q", asked(meta), meta.Finalizers)
	}
	return fmt.Sprintf("it has been terminating since %s, without finalizers", asked(meta))
}

// asked returns the time of the delete request: the timestamp is the end of the grace period.
func asked(meta metav1.ObjectMeta) string {
	at := meta.DeletionTimestamp.Time
	if meta.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*meta.DeletionGracePeriodSeconds) * time.Second)
	}
	return at.UTC().Format(time.RFC3339)
}
