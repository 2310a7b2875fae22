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
	// flushShare is the part of FlushTimeout that the others wait for a request.
	flushShare = 10
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
// events never become many concurrent requests, and such a namespace does not delay the others. After the end of ctx,
// it waits at most a tenth of FlushTimeout for a request before it goes on with other namespaces. If ctx carries a
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
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running = false
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
	s := sender{r, ctx.Done()}
	s.run(requests)
	return nil
}

// sender is the state of one call of Run.
type sender struct {
	*Recorder
	stop <-chan struct{} // closed when ctx of Run ends: from then on nothing waits
}

// permission is a permission that sending an event requires.
type permission struct {
	namespace string
	verb      string // create, patch or, if the namespace is being deleted, ""
}

func (s sender) run(ctx context.Context) {
	var requests sync.WaitGroup
	for ctx.Err() == nil {
		s.logDropped()
		stopping := s.stopping()
		series, failing, wait := s.next(stopping)
		if series != nil {
			s.begin(ctx, series, failing, &requests)
			continue
		}
		stop := s.stop
		if stopping {
			if s.isEmpty() {
				break
			}
			stop = ctx.Done() // others of failing namespaces follow
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-stop:
		}
		timer.Stop()
	}
	requests.Wait()
	s.logDropped()
	if count := s.dropAll(); count > 0 {
		logger := s.config.Cluster.Logger()
		logger.Warn("events dropped", "count", count, "hint", "the recorder ended before they were sent",
			"cause", context.Cause(ctx))
	}
}

// begin delivers a series. It does not wait for one of a failing namespace. At the end, a namespace that does not
// answer soon counts as failing, so that the others follow.
func (s sender) begin(ctx context.Context, series *series, failing bool, requests *sync.WaitGroup) {
	done := make(chan struct{})
	ended := false       // guarded by mu
	requests.Go(func() { // waited for by run
		defer close(done)
		s.deliver(ctx, series)
		s.mu.Lock()
		ended = true
		s.requests--
		s.retrying = s.retrying && !failing
		if o := s.outages[series.event.Namespace]; o != nil {
			o.sending = false
		}
		s.mu.Unlock()
		s.signal()
	})
	if failing {
		return
	}
	select {
	case <-done:
		return
	case <-s.stop:
	}
	timer := time.NewTimer(s.config.FlushTimeout / flushShare)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.mu.Lock()
		if !ended {
			s.outages[series.event.Namespace] = &outage{since: time.Now(), sending: true}
		}
		s.mu.Unlock()
	}
}

func (s sender) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// deliver sends a series, or puts it back after a temporary failure.
func (s sender) deliver(ctx context.Context, series *series) {
	count, verb, err := s.send(ctx, series)
	if err == nil {
		s.succeeded(series, count, verb)
		return
	}
	class := retry.Classify(err)
	s.logError(class, verb, series, err)
	if class != retry.Transient && class != retry.Throttled || ctx.Err() != nil || s.stopping() {
		s.failed(series)
		return
	}
	s.postpone(series, err)
}

// The verbs of requests.
const create, patch = "create", "patch"

// send creates or patches the Event of the series, and returns the count that it sent and the verb of the last request.
func (s sender) send(ctx context.Context, series *series) (count int32, verb string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.mu.Lock()
	event, created := series.toEvent(), series.created
	s.mu.Unlock()
	if count = 1; event.Series != nil {
		count = event.Series.Count
	}
	if created {
		err := s.patch(ctx, event)
		if !apierrors.IsNotFound(err) {
			return count, patch, err
		}
		// The Event has expired. Create it again, with the original eventTime and the full count.
	}
	attempted := series.createAttempted
	series.createAttempted = true
	err = s.create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		if attempted { // an earlier attempt succeeded, but its response was lost
			if event.Series == nil {
				return count, create, nil
			}
			return count, patch, s.patch(ctx, event) // adds the repeats since that attempt
		}
		// Another recorder has used the same name: an object of this name, at the same time.
		s.rename(series)
		event.Name = series.event.Name // only this goroutine changes the name
		err = s.create(ctx, event)
	}
	return count, create, err
}

func (s sender) create(ctx context.Context, event *eventsv1.Event) error {
	return s.client.Post().Namespace(event.Namespace).Resource("events").Body(event).MaxRetries(0).Do(ctx).Error()
}

func (s sender) patch(ctx context.Context, event *eventsv1.Event) error {
	body, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return fmt.Errorf("encode the series: %w", err)
	}
	return s.client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
		Body(body).MaxRetries(0).Do(ctx).Error()
}

// logError logs the error of a request, at most once in logInterval for its class. A missing permission, and a
// namespace that is being deleted, are logged again only after a success.
func (s sender) logError(class retry.Class, verb string, series *series, err error) {
	ending := class == retry.NamespaceTerminating
	needed := permission{series.event.Namespace, verb}
	if ending {
		needed.verb = ""
	}
	s.mu.Lock()
	logs := !s.forbidden[needed] && s.mayLog(string(class))
	if logs && (ending || class == retry.Forbidden) {
		if len(s.forbidden) >= maxForbidden {
			clear(s.forbidden)
		}
		s.forbidden[needed] = true
	}
	s.mu.Unlock()
	if !logs {
		return
	}
	regarding := series.event.Regarding
	attrs := []any{
		"class", class, "error", err,
		"kind", regarding.Kind, "namespace", regarding.Namespace, "name", regarding.Name, "reason", series.event.Reason,
	}
	switch class {
	case retry.NamespaceTerminating:
		s.config.Cluster.Logger().Info("events not sent: the namespace is being deleted", attrs...)
		return
	case retry.Forbidden:
		attrs = append(attrs, "hint",
			fmt.Sprintf("a Role must allow create and patch of events (events.k8s.io) in namespace %s: it lacks %s; "+
				"this warning is not repeated", needed.namespace, verb))
	}
	s.config.Cluster.Logger().Warn("failed to send event", attrs...)
}

// logDropped logs events that were dropped because of the limits of Config.
func (s sender) logDropped() {
	s.mu.Lock()
	count := s.unreported
	logs := count > 0 && s.mayLog("dropped")
	if logs {
		s.unreported = 0
	}
	s.mu.Unlock()
	if logs {
		s.config.Cluster.Logger().Warn("events dropped", "count", count, "hint", "too many events at once, or about "+
			"one object")
	}
}
