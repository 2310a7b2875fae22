package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// waiting is one wait for one object or for a selection. It belongs to the goroutine that runs it.
type waiting[T kube.Object] struct {
	what         string
	resolve      func(ctx context.Context) (target, error)
	mustBeServed bool
	// judge reports whether the wait has ended, and with which error; otherwise it sets missing. found is false
	// if the object does not exist. It is for a wait for one object.
	judge func(obj T, found bool) (done bool, err error)
	// read lists the objects, and reports whether the wait has ended. version is that of the list. selects returns the
	// options of the watch that follows, and changed is called for its events.
	read    func(ctx context.Context, t target) (version string, done bool, err error)
	selects func(t target) []WatchOption
	changed func(t target, obj T, exists bool) (relevant, done bool, err error)
	// explain returns missing, if only the end of the wait computes it. Optional.
	explain func() string

	name     string // of the object or the selection, as far as known
	found    T      // the last object of a wait for one object
	resolved bool   // the last attempt made a request for the object
	missing  string // the reason why the last seen state was not the awaited one; empty: none was seen
	readErr  error  // of the last read, if it failed
}

// newWaiting returns a wait for the object that resolve returns, without resolve and judge.
func newWaiting[T kube.Object](what, name string) *waiting[T] {
	w := &waiting[T]{what: what, name: name}
	w.read = func(ctx context.Context, t target) (version string, done bool, err error) {
		obj, found, version, err := w.list(ctx, t)
		if err != nil {
			return "", false, err
		}
		w.found = obj
		done, err = w.judge(obj, found)
		return version, done, err
	}
	w.selects = func(t target) []WatchOption { return []WatchOption{FieldSelector(byName(t.key.Name))} }
	w.changed = func(t target, obj T, exists bool) (relevant, done bool, err error) {
		if kube.KeyOf(obj) != t.key { // from a server that ignores the selector
			return false, false, nil
		}
		w.found = obj
		done, err = w.judge(obj, exists)
		return true, done, err
	}
	return w
}

// run waits for within (0: the default; negative: no end) or until ctx ends.
func (w *waiting[T]) run(ctx context.Context, within time.Duration) error {
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
		done, quiet, err := w.follow(ctx)
		switch {
		case done && err == nil:
			return nil
		case ctx.Err() != nil:
			return w.gaveUp(ctx, time.Since(began))
		case !w.resolved: // the error begins with the object's name
			if !w.isPassing(err) {
				return fmt.Errorf("%s %w", w.what, err)
			}
		case done, !w.isPassing(err):
			return fmt.Errorf("%s %s: %w", w.what, w.name, err)
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
		if !retryrules.Wait(ctx, max(after, pause(failures))) {
			return w.gaveUp(ctx, time.Since(began))
		}
	}
}

// gaveUp returns the error after the timeout.
func (w *waiting[T]) gaveUp(ctx context.Context, after time.Duration) error {
	if w.explain != nil {
		w.missing = w.explain()
	}
	switch {
	case w.readErr == nil && w.missing == "":
		return fmt.Errorf("%s %s: %w after %s, before it could be read", w.what, w.name, ctx.Err(),
			after.Round(time.Millisecond))
	case w.readErr == nil:
		return fmt.Errorf("%s %s: %w after %s: %s", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.missing)
	case w.missing == "":
		return fmt.Errorf("%s %s: %w after %s: %w", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.readErr)
	}
	return fmt.Errorf("%s %s: %w after %s: %s; since then it could not be read: %w",
		w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.missing, w.readErr)
}

// follow lists the objects and then watches them, until the wait or the watch ends. quiet reports that the watch
// ended soon without an event, or ended at once.
func (w *waiting[T]) follow(ctx context.Context) (done, quiet bool, err error) {
	t, err := w.resolve(ctx)
	if t.kind.Kind != "" {
		w.name = t.String()
	}
	if w.resolved = err == nil; !w.resolved {
		return false, true, err
	}
	version, done, err := w.read(ctx, t)
	if done || err != nil {
		return done, true, err
	}
	w.readErr = nil
	opened := time.Now()
	stream, err := Watch[T](ctx, t.client, append(w.selects(t), OfKind(t.kind), InNamespace(t.key.Namespace),
		NotOlderThan(version))...)
	if err != nil {
		return false, true, err
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
			return false, isQuiet(), apierrors.FromObject(event.Object)
		}
		if event.Type == watch.Bookmark {
			continue
		}
		obj, ok := event.Object.(T)
		if !ok {
			return true, false, fmt.Errorf("the watch has brought a %T, and a %T was expected", event.Object, obj)
		}
		relevant, done, err := w.changed(t, obj, event.Type != watch.Deleted)
		if done {
			return true, false, err
		}
		quiet = quiet && !relevant
	}
	return false, isQuiet(), nil
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

func byName(name string) string { return fields.OneTermEqualSelector(fieldName, name).String() }

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
