package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/retry"
)

// defaultWaitTimeout is the Timeout of WaitFor and WaitDeleted.
const defaultWaitTimeout = 5 * time.Minute

// ErrFailed means that the check of WaitFor found the object Failed: waiting does not help.
var ErrFailed = errors.New("the object has failed")

// Timeout bounds WaitFor and WaitDeleted. Default 5 min. Negative: no limit other than ctx.
func Timeout(d time.Duration) WaitOption {
	return optionFunc(func(s *settings) { s.timeout = d })
}

// WaitFor waits until the object with key exists and check finds it Current. It returns that object, which belongs
// to the caller.
//
//	deployment, err := client.WaitFor[*appsv1.Deployment](ctx, c, key, readiness.RolledOut, client.Timeout(time.Minute))
//
// For a custom resource with a condition Ready use readiness.Ready: unlike readiness.Condition, it ends the
// wait at once if the object is Stalled.
//
// WaitFor is for sequential programs: installers, migrations, tests. In a handler it would block a worker: return
// controller.RequeueAfter instead or, better, let the controller watch the object.
//
// Flow: WaitFor lists the object, which is one request if it is Current already, and then watches it. When the
// watch ends, it starts again; after failures it pauses, up to 10 s (longer if the API server asks for it). It
// does not poll, and never reads from informers, which may show the state before the awaited change. It also
// waits for a kind that is not served yet, because its CustomResourceDefinition was just created.
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
func WaitFor[T kube.Object](ctx context.Context, c *Client, key kube.Key, check readiness.Check, options ...WaitOption) (T, error) {
	var none T
	s, err := newSettings(options)
	switch {
	case err != nil:
	case c == nil:
		err = c.check()
	case check == nil:
		err = errors.New("the check is nil: readiness.Of is one for all kinds")
	case key.Name == "":
		err = errors.New("the key has no name")
	}
	switch {
	case err != nil && key.Name == "":
		return none, fmt.Errorf("wait for a %s: %w", reflect.TypeFor[T](), err)
	case err != nil:
		return none, fmt.Errorf("wait for %s: %w", key, err)
	}
	w := &waiting[T]{what: "wait for", name: key.String()}
	w.resolve = func(ctx context.Context) (target, error) { return targetFor[T](ctx, c, key, s.kind) }
	w.judge = func(obj T, found bool) (bool, error) {
		if !found {
			w.missing = "it does not exist"
			return false, nil
		}
		state := check(obj)
		w.missing = state.String()
		switch {
		case state.Ready():
			return true, nil
		case state.Status == readiness.Failed:
			return true, fmt.Errorf("%w: %s", ErrFailed, state.Message)
		}
		return false, nil
	}
	return w.run(ctx, s.timeout)
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
// that the state of the object is unknown. An obj without a uid. Otherwise as WaitFor.
func WaitDeleted(ctx context.Context, c *Client, obj kube.Object, options ...WaitOption) error {
	s, err := newSettings(options)
	switch {
	case err != nil:
	case c == nil:
		err = c.check()
	case usercode.IsNil(obj):
		err = errors.New("the object is nil")
	case obj.GetUID() == "":
		err = fmt.Errorf("%s has no uid, so it cannot be identified: use an object that was read from the cluster", kube.KeyOf(obj))
	}
	if err != nil {
		return fmt.Errorf("wait for a deletion: %w", err)
	}
	w := &waiting[*metav1.PartialObjectMetadata]{what: "wait for the deletion of", name: kube.KeyOf(obj).String(), mustBeServed: true}
	w.resolve = func(ctx context.Context) (target, error) {
		t, err := c.targetOf(ctx, withKind(obj, s.kind))
		t.model = (*metav1.PartialObjectMetadata)(nil)
		return t, err
	}
	w.judge = func(live *metav1.PartialObjectMetadata, found bool) (bool, error) {
		if !found || live.UID != obj.GetUID() {
			return true, nil
		}
		w.missing = holds(live.ObjectMeta, obj.GetUID())
		return false, nil
	}
	_, err = w.run(ctx, s.timeout)
	return err
}

// withKind returns obj or, with option OfKind, the name of obj with that kind.
func withKind(obj kube.Object, kind schema.GroupVersionKind) kube.Object {
	if kind.Empty() {
		return obj
	}
	named := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
	named.SetGroupVersionKind(kind)
	return named
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

// waiting is one wait for one object. It belongs to the goroutine that runs it.
type waiting[T kube.Object] struct {
	what         string
	resolve      func(ctx context.Context) (target, error)
	mustBeServed bool
	// judge reports whether the wait has ended, and with which error; otherwise it sets missing. found is false
	// if the object does not exist.
	judge func(obj T, found bool) (done bool, err error)

	name     string // of the object, as far as known
	resolved bool   // the last attempt made a request for the object
	missing  string // the reason why the last seen object was not ready
	readErr  error  // of the last read, if it failed
}

// run waits for within (0: the default; negative: no end) or until ctx ends.
func (w *waiting[T]) run(ctx context.Context, within time.Duration) (T, error) {
	var none T
	if within == 0 {
		within = defaultWaitTimeout
	}
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	began := time.Now()
	for failures := 0; ; failures++ {
		obj, done, quiet, err := w.follow(ctx)
		switch {
		case done && err == nil:
			return obj, nil
		case ctx.Err() != nil:
			return none, w.gaveUp(ctx, time.Since(began))
		case !w.resolved: // the error begins with the object's name
			if !w.isPassing(err) {
				return none, fmt.Errorf("%s %w", w.what, err)
			}
		case done, !w.isPassing(err):
			return none, fmt.Errorf("%s %s: %w", w.what, w.name, err)
		case err == nil && !quiet:
			failures = -1 // the watch has ended normally
			continue
		case !quiet:
			failures = 0 // in a row
		}
		if err != nil {
			w.readErr = err
		}
		after, _ := retry.RetryAfter(err)
		select {
		case <-time.After(max(after, pause(failures))):
		case <-ctx.Done():
			return none, w.gaveUp(ctx, time.Since(began))
		}
	}
}

// gaveUp returns the error after the timeout.
func (w *waiting[T]) gaveUp(ctx context.Context, after time.Duration) error {
	switch {
	case w.readErr == nil && w.missing == "":
		return fmt.Errorf("%s %s: %w after %s, before it could be read", w.what, w.name, ctx.Err(), after.Round(time.Millisecond))
	case w.readErr == nil:
		return fmt.Errorf("%s %s: %w after %s: %s", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.missing)
	case w.missing == "":
		return fmt.Errorf("%s %s: %w after %s: %w", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.readErr)
	}
	return fmt.Errorf("%s %s: %w after %s: %s; since then it could not be read: %w",
		w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.missing, w.readErr)
}

// follow lists the object and then watches it, until judge ends the wait or the watch ends. quiet reports
// that the watch ended soon without an event, or ended at once.
func (w *waiting[T]) follow(ctx context.Context) (obj T, done, quiet bool, err error) {
	var none T
	t, err := w.resolve(ctx)
	if t.kind.Kind != "" {
		w.name = t.String()
	}
	if w.resolved = err == nil; !w.resolved {
		return none, false, true, err
	}
	obj, found, version, err := w.list(ctx, t)
	if err != nil {
		return none, false, true, err
	}
	w.readErr = nil
	if done, err = w.judge(obj, found); done {
		return obj, true, false, err
	}
	opened := time.Now()
	stream, err := Watch[T](ctx, t.client, OfKind(t.kind), InNamespace(t.key.Namespace),
		FieldSelector(byName(t.key.Name)), NotOlderThan(version))
	if err != nil {
		return none, false, true, err
	}
	defer func() { // stops the goroutine of the watch
		stream.Stop()
		for range stream.ResultChan() {
		}
	}()
	quiet = true
	isQuiet := func() bool { lasted := time.Since(opened); return quiet && lasted < maxPause || lasted < minPause }
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return none, false, isQuiet(), apierrors.FromObject(event.Object)
		}
		if event.Type == watch.Bookmark {
			continue
		}
		obj, ok := event.Object.(T)
		if !ok {
			return none, true, false, fmt.Errorf("the watch has brought a %T, and a %T was expected", event.Object, obj)
		}
		if kube.KeyOf(obj) != t.key {
			continue
		}
		quiet = false
		if done, err := w.judge(obj, event.Type != watch.Deleted); done {
			return obj, true, false, err
		}
	}
	return none, false, isQuiet(), nil
}

// list reads the object by a list, because its resourceVersion allows a watch whether or not the object exists.
func (w *waiting[T]) list(ctx context.Context, t target) (obj T, found bool, version string, err error) {
	response, key := &page{}, t.key
	t.key.Name = ""
	r := t.request(VerbList, settings{})
	r.List.FieldSelector = byName(key.Name)
	r.Response = response
	if err := t.client.send(ctx, r); err != nil {
		return obj, false, "", err
	}
	var none T
	for _, item := range response.Items {
		obj, err = decode(item, t.kind, none)
		if err != nil || kube.KeyOf(obj) == key { // a server that ignores the selector returns other objects too
			return obj, err == nil, response.ResourceVersion, err
		}
	}
	return none, false, response.ResourceVersion, nil
}

func byName(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// isPassing reports whether another attempt may succeed after err.
func (w *waiting[T]) isPassing(err error) bool {
	if err == nil {
		return true
	}
	switch ReasonOf(err) {
	case ReasonNotServed:
		return !w.mustBeServed
	case ReasonTransient, ReasonUnreachable, ReasonThrottled, ReasonConflict, ReasonNotFound:
		return true
	}
	return false
}

// Pauses between failed attempts.
const (
	minPause = 200 * time.Millisecond
	maxPause = 10 * time.Second
)

// pause returns the delay after a number of consecutive failures. It is random, so that clients do not retry
// together.
func pause(failures int) time.Duration {
	d := maxPause
	if failures < 6 { // 6.4 s
		d = minPause << failures
	}
	return d - time.Duration(rand.Int64N(int64(d/4)))
}
