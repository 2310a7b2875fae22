package event

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Recorder queues events, and sends them while Run runs. It is safe for concurrent use.
//
// The logger of the Cluster receives warnings about events that could not be sent or were dropped. There is at most one
// per minute for each error class (retry.Class), one for drops, one for objects that Events cannot refer to, and one
// while the Recorder does not run although events are dropped or have waited for a minute. A missing permission is
// logged once for each namespace and verb, a namespace that is being deleted once (at level Info), and again after a
// request has succeeded in between.
//
// Invariant: a series is in queue if its state is queued, in waiting if its state is waiting, and otherwise in
// neither. One mutex guards all series, so the state and the lists change together.
type Recorder struct {
	// Immutable after New.
	config  Config
	host    string // the Events' reportingInstance: the Pod's name in a Pod
	client  rest.Interface
	backoff retry.Policy
	wake    chan struct{} // capacity 1; has an element after queue or waiting have grown

	mu         sync.Mutex
	running    bool                 // guarded by mu
	retrying   bool                 // guarded by mu; an event of a failing namespace is being sent
	requests   int                  // guarded by mu; events that are being sent
	objects    objects              // guarded by mu
	queue      []*series            // guarded by mu; new events in order of arrival
	waiting    []*series            // guarded by mu; repeats, sent when due
	outages    map[string]*outage   // guarded by mu; by namespace
	lastName   time.Time            // guarded by mu; the time in the last event's name
	stats      stats                // guarded by mu
	unreported uint64               // guarded by mu; dropped events of valid objects since the last log line
	logged     map[string]time.Time // guarded by mu; the last log line by cause
	forbidden  map[permission]bool  // guarded by mu; missing permissions and namespaces being deleted that were logged
}

// stats are counters since New.
type stats struct {
	// Sent counts successful requests: created Events, and patches with the count of repeats.
	Sent uint64
	// Dropped counts recorded events that were dropped because of a full queue, the object's budget, an invalid
	// object (nil, without a name, of an unknown kind), the eviction of the object (Config.QueueSize), or the end of
	// FlushTimeout.
	Dropped uint64
	// Failed counts recorded events that the API server rejected, or that could not be sent within 1 min.
	Failed uint64
}

// New returns a Recorder. The error lists all mistakes in config. New makes no request and starts no goroutine:
// events stay in the queue until Run is called. The first Recorder of a Cluster is the default of its controllers, sets
// of children and finalizers.
func New(config Config) (*Recorder, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("event recorder: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("event recorder: get the host's name: %w", err)
	}
	client, err := config.Cluster.RESTClient(eventsv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("event recorder: %w", err)
	}
	r := &Recorder{
		config:  config,
		host:    cut(host, maxShort),
		client:  client,
		backoff: retryrules.Defaults()[retry.Transient],
		wake:    make(chan struct{}, 1),
		objects: newObjects(max(config.QueueSize, minObjects)),
		outages: map[string]*outage{},
		logged:  map[string]time.Time{}, forbidden: map[permission]bool{},
	}
	observers := apiobject.ObserversOf(config.Cluster)
	observers.SetEvents(r)
	observers.Require(apiobject.Permission{
		Kind: eventsv1.SchemeGroupVersion.WithKind("Event"), Verbs: []string{"create", "patch"},
	})
	return r, nil
}

// Event records an event about the referenced object. reason (what happened) and action (what the controller did)
// are CamelCase words for programs, note is a description for people. eventType is corev1.EventTypeNormal or
// corev1.EventTypeWarning; "" means Normal, and any other value Warning.
//
// Event never blocks and never fails. It shortens reason and action to 128 bytes and note to 1024 bytes. If reason
// or action is empty, the other one replaces it. Events are repeats only if all arguments except the
// resourceVersion are equal, so a note should not contain values such as times and attempts.
//
// Event does nothing for a nil Recorder.
func (r *Recorder) Event(regarding corev1.ObjectReference, eventType, reason, action, note string) {
	switch {
	case r == nil:
	case regarding.Name == "":
		r.dropInvalid(missingName(regarding), reason, action)
	default:
		r.record(regarding, sanitize(eventType, reason, action, note))
	}
}

// warnIfNotRunning logs that events are dropped or have waited for logInterval because Run was not called. It logs
// at most once in logInterval. While Run runs, Run itself logs dropped events.
func (r *Recorder) warnIfNotRunning(now time.Time) {
	r.mu.Lock()
	waiting, dropped := len(r.queue), r.unreported
	waits := waiting > 0 && now.Sub(r.queue[0].event.EventTime.Time) >= logInterval
	warn := !r.running && (waits || dropped > 0) && r.mayLog("not running")
	if warn {
		r.unreported = 0
	}
	r.mu.Unlock()
	if warn {
		r.config.Cluster.Logger().Warn("event recorder is not running", "waiting", waiting, "dropped", dropped,
			"hint", "call Recorder.Run in its own goroutine, and stop it after the controllers")
	}
}

// mayLog reports whether this cause was last logged at least logInterval ago. If so, it records the current time. r.mu
// must be held.
func (r *Recorder) mayLog(cause string) bool {
	now := time.Now()
	if last, ok := r.logged[cause]; ok && now.Sub(last) < logInterval {
		return false
	}
	r.logged[cause] = now
	return true
}

// drop counts dropped events of valid objects. r.mu must be held.
func (r *Recorder) drop(count uint64) {
	r.stats.Dropped += count
	r.unreported += count
}

// record counts a repeat, or queues a new event. regarding must have a name.
func (r *Recorder) record(regarding corev1.ObjectReference, id identity) {
	now := time.Now()
	defer r.warnIfNotRunning(now) // runs after the unlock
	r.mu.Lock()
	defer r.mu.Unlock()
	obj, evicted := r.objects.get(regarding, now, r.config.ObjectBurst)
	r.dropWaiting(evicted)
	obj.removeIdle(now.Add(-2 * r.config.RepeatInterval))
	if s, ok := obj.series[id]; ok {
		s.repeat(now)
		if s.state == idle {
			r.schedule(s)
		}
		return
	}
	switch {
	case !obj.takeToken(now, r.config.ObjectBurst, objectInterval):
		r.drop(1)
		return
	case !r.hasRoom(namespaceOf(regarding)):
		obj.tokens++ // the event did not use it
		r.drop(1)
		return
	}
	s := &series{
		object: obj, id: id, event: r.newEvent(regarding, id, now), state: queued, count: 1, last: now, due: now,
	}
	obj.series[id] = s
	r.queue = append(r.queue, s)
	r.signal()
}

// newEvent returns the Event to create. r.mu must be held.
func (r *Recorder) newEvent(regarding corev1.ObjectReference, id identity, now time.Time) eventsv1.Event {
	nameTime := now
	if !nameTime.After(r.lastName) { // two events in one clock tick
		nameTime = r.lastName.Add(1)
	}
	r.lastName = nameTime
	return eventsv1.Event{
		// TypeMeta is required because the Cluster's scheme does not contain the type.
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(regarding),
			Name:      eventName(regarding.Name, uint64(nameTime.UnixNano())),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: r.config.Controller,
		ReportingInstance:   r.host,
		Regarding:           regarding,
		Type:                id.eventType,
		Reason:              id.reason,
		Action:              id.action,
		Note:                id.note,
	}
}

// rename gives the Event of a series a random name.
func (r *Recorder) rename(s *series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.event.Name = eventName(s.event.Regarding.Name, rand.Uint64())
}

// schedule puts a series into waiting until its due time. r.mu must be held.
func (r *Recorder) schedule(s *series) {
	s.state, s.due = waiting, later(s.due, time.Now())
	r.waiting = append(r.waiting, s)
	r.signal()
}

// dropWaiting drops the waiting repeats of an evicted object, which may be nil. New events in queue are still
// sent. r.mu must be held.
func (r *Recorder) dropWaiting(evicted *object) {
	if evicted == nil {
		return
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(s *series) bool {
		if s.object != evicted {
			return false
		}
		r.drop(s.unsent())
		return true
	})
}

// next removes and returns the series to send now, or nil and the time until the next one is due. New events come
// before repeats. failing reports whether the namespace of the series fails. With flush, all are due at once.
func (r *Recorder) next(flush bool) (found *series, failing bool, wait time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = time.Hour // the caller also waits for wake
	for _, list := range []*[]*series{&r.queue, &r.waiting} {
		first, earliest := -1, time.Time{}
		for i, s := range *list {
			switch at, ok := r.earliest(s, flush); {
			case !ok:
			case !flush && at.After(now):
				wait = min(wait, at.Sub(now))
			case first < 0 || at.Before(earliest):
				first, earliest = i, at
			}
		}
		if first >= 0 {
			found = (*list)[first]
			*list = slices.Delete(*list, first, first+1)
			o := r.outages[found.event.Namespace]
			if found.state, failing = sending, o != nil; failing {
				r.retrying, o.sending = true, true
			}
			r.requests++
			return found, failing, 0
		}
	}
	return nil, false, wait
}

// succeeded records that the API server has stored the event with the given count, by a request with this verb.
func (r *Recorder) succeeded(s *series, count int32, verb string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Sent++
	namespace := s.event.Namespace
	delete(r.outages, namespace)
	delete(r.forbidden, permission{namespace, verb})
	delete(r.forbidden, permission{namespace, ""})
	s.state, s.created, s.sent = idle, true, count
	s.due = time.Now().Add(r.config.RepeatInterval)
	if s.count > count {
		r.schedule(s)
	}
}

// failed counts the unsent events of a series as failed and removes it, so that the next equal event is a new one.
func (r *Recorder) failed(s *series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Failed += r.forget(s)
}

// forget removes a series from its object, and returns the number of its unsent events. r.mu must be held.
func (r *Recorder) forget(s *series) (unsent uint64) {
	s.state = idle
	delete(s.object.series, s.id)
	return s.unsent()
}

// isEmpty reports whether no series waits to be sent, or is being sent.
func (r *Recorder) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)+len(r.waiting)+r.requests == 0
}

// dropAll drops and removes every series in queue and waiting, and returns the number of events. If Run is called
// again, later events are new ones.
func (r *Recorder) dropAll() (count uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Concat(r.queue, r.waiting) {
		count += r.forget(s)
	}
	r.stats.Dropped += count
	r.queue, r.waiting = nil, nil
	return count
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // a signal is pending already
	}
}
