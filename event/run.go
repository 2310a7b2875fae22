package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	// requestTimeout bounds one request, because other events may wait for it.
	requestTimeout = 10 * time.Second
	// retryTimeout is how long one event is retried after temporary errors. It is longer than the restart of an API
	// server. The other events of its namespace wait.
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
// Run sends one request at a time, and one more of a namespace whose last request has failed temporarily, so that many
// events never become many concurrent requests, and such a namespace does not delay the others. If ctx carries a
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

	dropped uint64 // droppedByLimits at the last log line; only the goroutine of run uses it

	logs      sync.Mutex
	logged    map[string]time.Time // the last log line by cause; guarded by logs
	forbidden map[permission]bool  // missing permissions and namespaces being deleted that were logged; guarded by logs
}

// permission is a permission that sending an event requires.
type permission struct {
	namespace string
	verb      string // create, patch or, if the namespace is being deleted, ""
}

func (s *sender) run(ctx context.Context) {
	var retries sync.WaitGroup
	for drained := false; ctx.Err() == nil && !drained; {
		s.logDropped()
		stopping := s.stopping()
		series, failing, wait := s.next(stopping)
		switch {
		case failing:
			retries.Go(func() { // waited for below
				s.deliver(ctx, series)
				s.mu.Lock()
				s.retrying = false
				s.mu.Unlock()
				s.signal()
			})
			continue
		case series != nil:
			s.deliver(ctx, series)
			continue
		case stopping:
			retries.Wait() // others of failing namespaces follow
			drained = s.isEmpty()
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.stop:
		}
		timer.Stop()
	}
	retries.Wait()
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

// deliver sends a series, or puts it back after a temporary failure.
func (s *sender) deliver(ctx context.Context, series *series) {
	count, err := s.send(ctx, series)
	if err == nil {
		s.succeeded(series, count)
		return
	}
	class := retry.Classify(err)
	s.logError(class, series, err)
	if class != retry.Transient && class != retry.Throttled || ctx.Err() != nil || s.stopping() {
		s.failed(series)
		return
	}
	s.postpone(series, err)
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

// permitted returns err, as a forbiddenError if a permission is missing or the namespace is being deleted. After a
// success, these are logged again.
func (s *sender) permitted(needed permission, err error) error {
	ending := permission{namespace: needed.namespace}
	switch retry.Classify(err) {
	case "":
		s.logs.Lock()
		defer s.logs.Unlock()
		delete(s.forbidden, needed)
		delete(s.forbidden, ending)
	case retry.Forbidden:
		return &forbiddenError{permission: needed, err: err}
	case retry.NamespaceTerminating:
		return &forbiddenError{permission: ending, err: err}
	}
	return err
}

// forbiddenError reports a missing permission, or that the namespace is being deleted.
type forbiddenError struct {
	permission permission
	err        error
}

func (e *forbiddenError) Error() string { return e.err.Error() }
func (e *forbiddenError) Unwrap() error { return e.err }

func (s *sender) logError(class retry.Class, series *series, err error) {
	s.logs.Lock()
	defer s.logs.Unlock()
	forbidden, isForbidden := errors.AsType[*forbiddenError](err)
	if isForbidden && s.forbidden[forbidden.permission] || !s.mayLog(string(class)) {
		return // logged already
	}
	regarding := series.event.Regarding
	attrs := []any{
		"class", class, "error", err,
		"kind", regarding.Kind, "namespace", regarding.Namespace, "name", regarding.Name, "reason", series.event.Reason,
	}
	if isForbidden {
		if len(s.forbidden) >= maxForbidden {
			clear(s.forbidden)
		}
		s.forbidden[forbidden.permission] = true
		if forbidden.permission.verb == "" {
			s.config.Logger.Info("events not sent: the namespace is being deleted", attrs...)
			return
		}
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
	s.logs.Lock()
	defer s.logs.Unlock()
	if dropped == s.dropped || !s.mayLog("dropped") {
		return
	}
	s.config.Logger.Warn("events dropped", "count", dropped-s.dropped, "hint",
		"too many events at once, or about one object")
	s.dropped = dropped
}

// mayLog reports whether this cause was last logged at least logInterval ago. If so, it records the current time.
// s.logs must be held.
func (s *sender) mayLog(cause string) bool {
	now := time.Now()
	if last, ok := s.logged[cause]; ok && now.Sub(last) < logInterval {
		return false
	}
	s.logged[cause] = now
	return true
}
