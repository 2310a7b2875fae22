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

	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	// requestTimeout bounds one request: while it takes, the others wait.
	requestTimeout = 10 * time.Second
	// patience is how long one event is tried again with a server that cannot be reached or
	// does not want it now, which bridges a restart. The others wait meanwhile, and later ones
	// are dropped when the queue is full.
	patience = time.Minute
	// logInterval is the least time between two log lines for one reason.
	logInterval = time.Minute
	// maxRefused is how many permissions that a Role lacks are remembered. With more of them, some
	// are said again.
	maxRefused = 1000
)

// Run sends events until ctx ends, and then for up to FlushTimeout what is left. It returns nil
// after the last request has ended.
//
// Caller must: end ctx after the controllers that use the Recorder have ended, for whatever
// reason, and not with their context: they go on for their drain time, longer than
// FlushTimeout, and what is said after Run is not sent.
//
// It sends one request at a time, which is slow on purpose: a flood of events must not
// become one of requests. Under a lease (kube.WithLeadership) nothing is sent once it is lost.
//
// Errors: it is running already; it is nil.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return errors.New("run the event recorder: it is nil: event.New makes one")
	}
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("run the event recorder: it is running already")
	}
	r.running = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running = false
		r.mu.Unlock()
	}()

	// Requests outlive ctx by the time to flush.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var flushing sync.WaitGroup
	defer flushing.Wait()
	defer cancel()
	flushing.Go(func() { // waited for at the end of Run
		select {
		case <-ctx.Done():
		case <-requests.Done():
			return
		}
		pause(requests, r.config.FlushTimeout)
		cancel()
	})
	s := &sender{Recorder: r, stop: ctx.Done(), logged: map[string]time.Time{}, refused: map[permission]bool{}}
	s.run(requests)
	return nil
}

// sender is one Run.
type sender struct {
	*Recorder
	stop <-chan struct{} // closed when nothing is to be waited for any longer

	// Owned by run.
	failures int                  // of requests in a row that may succeed later
	logged   map[string]time.Time // when a reason was logged last
	refused  map[permission]bool  // those that a Role lacks, which was said
	dropped  uint64               // flooded, when it was logged last
}

// permission is one that the recorder needs.
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
	s.dropRest()
	s.logDropped()
}

func (s *sender) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// deliver sends a series until it is there or is given up.
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
		passes := class == retry.Transient || class == retry.Throttled
		if passes {
			s.failures++
		}
		if !passes || time.Since(began) >= patience || ctx.Err() != nil || s.stopping() {
			s.gaveUp(series)
			return
		}
		delay := s.backoff.Delay(s.failures, rand.Float64())
		if after, ok := retry.RetryAfter(err); ok {
			delay = max(delay, min(after, s.backoff.Max))
		}
		select {
		case <-time.After(delay):
		case <-s.stop: // a last attempt, at once
		}
	}
}

// send makes the request that the series needs, and returns the count that it carried.
func (s *sender) send(ctx context.Context, series *series) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.mu.Lock()
	event, created := series.whole(), series.created
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
		// It has expired. A new one says since when (eventTime) and how often (series).
	}
	tried := series.tried
	series.tried = true
	err := s.create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		if tried { // by an attempt whose answer was lost
			if event.Series == nil {
				return count, nil
			}
			return count, s.patch(ctx, event) // what was repeated since that attempt
		}
		// Another recorder has spoken of an object of this name in the same moment.
		s.rename(series)
		event.Name = series.event.Name // which only Run changes
		err = s.create(ctx, event)
	}
	return count, err
}

func (s *sender) create(ctx context.Context, event *eventsv1.Event) error {
	return s.permitted(permission{event.Namespace, "create"}, s.client.Post().Namespace(event.Namespace).Resource("events").
		Body(event).MaxRetries(0).Do(ctx).Error())
}

func (s *sender) patch(ctx context.Context, event *eventsv1.Event) error {
	body, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return fmt.Errorf("encode the series: %w", err)
	}
	return s.permitted(permission{event.Namespace, "patch"}, s.client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
		Body(body).MaxRetries(0).Do(ctx).Error())
}

// permitted notes whether a Role has the permission, as far as the answer says, and returns what
// is to be done about err: it is a forbiddenError when a Role lacks the permission.
func (s *sender) permitted(needed permission, err error) error {
	switch {
	case err == nil:
		delete(s.refused, needed)
	case retry.Classify(err) == retry.Forbidden && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &forbiddenError{permission: needed, err: err}
	}
	return err
}

// forbiddenError is an answer that a Role would change.
type forbiddenError struct {
	permission permission
	err        error
}

func (e *forbiddenError) Error() string { return e.err.Error() }
func (e *forbiddenError) Unwrap() error { return e.err }

func (s *sender) logError(class retry.Class, series *series, err error) {
	reason := string(class)
	forbidden, byRole := errors.AsType[*forbiddenError](err)
	if byRole {
		if reason += " by a Role"; s.refused[forbidden.permission] {
			return // it stays so until somebody has read that
		}
	}
	if !s.mayLog(reason) {
		return
	}
	about := series.event.Regarding
	attrs := []any{
		"class", class, "error", err,
		"kind", about.Kind, "namespace", about.Namespace, "name", about.Name, "reason", series.event.Reason,
	}
	if byRole {
		if len(s.refused) >= maxRefused {
			clear(s.refused)
		}
		s.refused[forbidden.permission] = true
		attrs = append(attrs, "hint", fmt.Sprintf("a Role must allow create and patch of events (events.k8s.io) in namespace %s: it lacks %s; "+
			"this is said once", series.event.Namespace, forbidden.permission.verb))
	}
	s.config.Logger.Warn("an event could not be sent", attrs...)
}

// flooded is how much was dropped because it was too much.
func (s *sender) flooded() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Dropped - s.mistakes
}

func (s *sender) logDropped() {
	dropped := s.flooded()
	if dropped == s.dropped || !s.mayLog("dropped") {
		return
	}
	s.config.Logger.Warn("events were dropped: too many at once, or about one object", "count", dropped-s.dropped)
	s.dropped = dropped
}

// mayLog reports whether the reason was not logged for a while, and notes that it is now.
func (s *sender) mayLog(reason string) bool {
	now := time.Now()
	if last, ok := s.logged[reason]; ok && now.Sub(last) < logInterval {
		return false
	}
	s.logged[reason] = now
	return true
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
