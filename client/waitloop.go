package client

import (
	"context"
	"errors"
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
	what string
	name string // of the object or the selection, as far as known
	// resolve returns the target: one object, or a selection.
	resolve      func(ctx context.Context) (target, error)
	mustBeServed bool
	judge        func(obj T) counted[T]
	// isOver reports whether the wait has ended, for found and awaited; explain returns the reason why it has not.
	isOver  func() bool
	explain func() string

	key      kube.Key // of the only object; without a name: of a selection
	found    map[kube.Key]counted[T]
	awaited  int   // number of found objects
	resolved bool  // the last attempt made a request for the object
	readErr  error // of the last read, if it failed
}

// counted is an object that exists.
type counted[T any] struct {
	object  T
	awaited bool
	reason  string // why it is not awaited
	failed  error  // ends the wait
}

// put records that an object exists, or was deleted. It reports whether that matters.
func (w *waiting[T]) put(obj T, exists bool) (relevant bool) {
	key := kube.KeyOf(obj)
	if w.key.Name != "" && w.key != key {
		return false // a server that ignores the selector returns other objects too
	}
	if w.found[key].awaited {
		w.awaited--
	}
	delete(w.found, key)
	if exists {
		one := w.judge(obj)
		if w.found[key] = one; one.awaited {
			w.awaited++
		}
	}
	return true
}

// over reports whether the wait has ended, and with which error.
func (w *waiting[T]) over() (done bool, err error) {
	if err := w.found[w.key].failed; err != nil {
		return true, err
	}
	return w.isOver(), nil
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
		if !retryrules.Wait(ctx, max(retryrules.ServerDelay(err), pause(failures))) {
			return w.gaveUp(ctx, time.Since(began))
		}
	}
}

// gaveUp returns the error after the timeout.
func (w *waiting[T]) gaveUp(ctx context.Context, after time.Duration) error {
	missing := "" // nothing was read
	if w.found != nil {
		missing = w.explain()
	}
	switch {
	case w.readErr == nil && missing == "":
		return fmt.Errorf("%s %s: %w after %s, before it could be read", w.what, w.name, ctx.Err(),
			after.Round(time.Millisecond))
	case w.readErr == nil:
		return fmt.Errorf("%s %s: %w after %s: %s", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), missing)
	case missing == "":
		return fmt.Errorf("%s %s: %w after %s: %w", w.what, w.name, ctx.Err(), after.Round(time.Millisecond), w.readErr)
	}
	return fmt.Errorf("%s %s: %w after %s: %s; since then it could not be read: %w",
		w.what, w.name, ctx.Err(), after.Round(time.Millisecond), missing, w.readErr)
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
	t.fromAPI, w.key = true, t.key
	if t.key.Name != "" { // a list has a resourceVersion that allows a watch, whether or not the object exists
		t.fields, t.pageSize, t.key.Name = fields.OneTermEqualSelector(fieldName, t.key.Name), 0, ""
	}
	objects, version, err := listState[T](ctx, t)
	if err != nil {
		return false, true, err
	}
	w.found, w.awaited, w.readErr = map[kube.Key]counted[T]{}, 0, nil
	for _, obj := range objects {
		w.put(obj, true)
	}
	if done, err := w.over(); done {
		return true, true, err
	}
	opened := time.Now()
	t.notOlderThan = version
	stream, err := t.watch(ctx)
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
		quiet = !w.put(obj, event.Type != watch.Deleted) && quiet
		if done, err := w.over(); done {
			return true, false, err
		}
	}
	return false, isQuiet(), nil
}

// isPassing reports whether another attempt may succeed after err.
func (w *waiting[T]) isPassing(err error) bool {
	if err == nil {
		return true
	}
	if errors.Is(err, kube.ErrNotServed) {
		return !w.mustBeServed
	}
	switch retry.Classify(err) {
	case retry.Transient, retry.Timeout, retry.Throttled, retry.Conflict:
		return true
	}
	return apierrors.IsNotFound(err)
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
