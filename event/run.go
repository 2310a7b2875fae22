package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	// requestTimeout bounds one request, because all other events wait for it.
	requestTimeout = 10 * time.Second
	// retryTimeout is how long one event is retried after temporary errors. It is longer than the restart of an API
	// server. All other events wait, and new ones are dropped when the queue is full.
	retryTimeout = time.Minute
	// logInterval is the minimum time between two log lines with the same cause.
	logInterval = time.Minute
	// maxForbidden is the number of missing permissions to remember. Beyond it, some are logged again.
	maxForbidden = 1000
)

// Run sends events until ctx ends, and then sends the remaining ones for at most FlushTimeout. It returns nil after
// the last request has ended.
//
// The caller must end ctx after the controllers that use the Recorder have returned. ctx must not be their context:
// their drain time may be longer than FlushTimeout, and events that are recorded after Run are not sent.
//
// Run sends one request at a time, so that many events never become many concurrent requests. If ctx carries a
// leadership (package leader), Run sends nothing after the leadership is lost.
//
// Errors: r is nil; r is running already.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return errors.New("run the event recorder: the recorder is nil: create one with event.New")
	}
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("run the event recorder: running already")
	}
	r.running = true
	s := &sender{
		Recorder: r, stop: ctx.Done(), logged: map[string]time.Time{}, forbidden: map[permission]bool{},
		dropped: r.reported,
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running = false
		r.reported = s.dropped
		r.mu.Unlock()
	}()

	// The requests' context ends FlushTimeout after ctx, or when leadership is lost.
	requests, cancel := kube.UntilLeadershipLost(ctx)
	var flushing sync.WaitGroup
	defer flushing.Wait()
	defer cancel()
	flushing.Go(func() { // waited for at the end of Run
		select {
		case <-ctx.Done():
		case <-requests.Done():
			return
		}
		retryrules.Wait(requests, r.config.FlushTimeout)
		cancel()
	})
	s.run(requests)
	return nil
}

// sender is the state of one call of Run.
type sender struct {
	*Recorder
	stop <-chan struct{} // closed when ctx of Run ends: from then on nothing waits

	// Only the goroutine of run uses these fields.
	failures  int                  // temporary failures in a row, of all events
	logged    map[string]time.Time // the last log line by cause
	forbidden map[permission]bool  // missing permissions that were logged
	dropped   uint64               // droppedByLimits at the last log line
}

// permission is a permission that sending an event requires.
type permission struct {
	namespace string
	verb      string // create or patch
}

func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.logDropped()
		series, wait := s.next(s.stopping())
		if series != nil {
			s.deliver(ctx, series)
			continue
		}
		if s.stopping() {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.stop:
		}
		timer.Stop()
	}
	s.logDropped()
	before := s.droppedByLimits()
	s.dropAll()
	if count := s.droppedByLimits() - before; count > 0 {
		s.config.Logger.Warn("events dropped", "count", count, "hint", "the recorder ended before they were sent",
			"cause", context.Cause(ctx))
		s.dropped += count
	}
}

func (s *sender) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// deliver sends a series. It retries until the series is sent or has failed permanently.
func (s *sender) deliver(ctx context.Context, series *series) {
	for began := time.Now(); ; {
		count, err := s.send(ctx, series)
		if err == nil {
			s.failures = 0
			s.succeeded(series, count)
			return
		}
		class := retry.Classify(err)
		s.logError(class, series, err)
		temporary := class == retry.Transient || class == retry.Throttled
		if temporary {
			s.failures++
		}
		if !temporary || time.Since(began) >= retryTimeout || ctx.Err() != nil || s.stopping() {
			s.failed(series)
			return
		}
		delay := retryrules.Delay(s.backoff, s.failures, rand.Float64())
		if after, ok := retry.RetryAfter(err); ok {
			delay = max(delay, min(after, s.backoff.Max))
		}
		select {
		case <-time.After(delay):
		case <-s.stop: // one last attempt without delay
		}
	}
}

// send creates or patches the Event of the series, and returns the count that it sent.
func (s *sender) send(ctx context.Context, series *series) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.mu.Lock()
	event, created := series.toEvent(), series.created
	s.mu.Unlock()
	count := int32(1)
	if event.Series != nil {
		count = event.Series.Count
	}
	if created {
		err := s.patch(ctx, event)
		if !apierrors.IsNotFound(err) {
			return count, err
		}
		// The Event has expired. Create it again, with the original eventTime and the full count.
	}
	attempted := series.createAttempted
	series.createAttempted = true
	err := s.create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		if attempted { // an earlier attempt succeeded, but its response was lost
			if event.Series == nil {
				return count, nil
			}
			return count, s.patch(ctx, event) // adds the repeats since that attempt
		}
		// Another recorder has used the same name: an object of this name, at the same time.
		s.rename(series)
		event.Name = series.event.Name // only this goroutine changes the name
		err = s.create(ctx, event)
	}
	return count, err
}

func (s *sender) create(ctx context.Context, event *eventsv1.Event) error {
	return s.permitted(permission{event.Namespace, "create"},
		s.client.Post().Namespace(event.Namespace).Resource("events").
			Body(event).MaxRetries(0).Do(ctx).Error())
}

func (s *sender) patch(ctx context.Context, event *eventsv1.Event) error {
	body, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return fmt.Errorf("encode the series: %w", err)
	}
	return s.permitted(permission{event.Namespace, "patch"},
		s.client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
			Body(body).MaxRetries(0).Do(ctx).Error())
}

// permitted returns err, as a forbiddenError if a permission is missing. After a success, a missing permission is
// logged again.
func (s *sender) permitted(needed permission, err error) error {
	switch {
	case err == nil:
		delete(s.forbidden, needed)
	case retry.Classify(err) == retry.Forbidden && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &forbiddenError{permission: needed, err: err}
	}
	return err
}

// forbiddenError reports a missing permission.
type forbiddenError struct {
	permission permission
	err        error
}

func (e *forbiddenError) Error() string { return e.err.Error() }
func (e *forbiddenError) Unwrap() error { return e.err }

func (s *sender) logError(class retry.Class, series *series, err error) {
	cause := string(class)
	forbidden, byRole := errors.AsType[*forbiddenError](err)
	if byRole {
		if cause += " by a Role"; s.forbidden[forbidden.permission] {
			return // logged already
		}
	}
	if !s.mayLog(cause) {
		return
	}
	regarding := series.event.Regarding
	attrs := []any{
		"class", class, "error", err,
		"kind", regarding.Kind, "namespace", regarding.Namespace, "name", regarding.Name, "reason", series.event.Reason,
	}
	if byRole {
		if len(s.forbidden) >= maxForbidden {
			clear(s.forbidden)
		}
		s.forbidden[forbidden.permission] = true
		attrs = append(attrs, "hint",
			fmt.Sprintf("a Role must allow create and patch of events (events.k8s.io) in namespace %s: it lacks %s; "+
				"this warning is not repeated", series.event.Namespace, forbidden.permission.verb))
	}
	s.config.Logger.Warn("failed to send event", attrs...)
}

// droppedByLimits returns the number of events dropped because of the limits of Config, without invalid ones.
func (s *sender) droppedByLimits() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Dropped - s.invalid
}

func (s *sender) logDropped() {
	dropped := s.droppedByLimits()
	if dropped == s.dropped || !s.mayLog("dropped") {
		return
	}
	s.config.Logger.Warn("events dropped", "count", dropped-s.dropped, "hint",
		"too many events at once, or about one object")
	s.dropped = dropped
}

// mayLog reports whether this cause was last logged at least logInterval ago. If so, it records the current time.
func (s *sender) mayLog(cause string) bool {
	now := time.Now()
	if last, ok := s.logged[cause]; ok && now.Sub(last) < logInterval {
		return false
	}
	s.logged[cause] = now
	return true
}
