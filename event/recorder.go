package event

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/retry"
)

// Recorder takes events, and sends them while it runs. It is safe for concurrent use.
type Recorder struct {
	// Immutable after New.
	config  Config
	client  rest.Interface
	backoff retry.Policy
	wake    chan struct{} // has an element when there may be something to send

	mu       sync.Mutex
	running  bool      // guarded by mu
	objects  objects   // guarded by mu
	queue    []*series // guarded by mu; to be sent at once, in this order
	waiting  []*series // guarded by mu; to be sent when they are due
	lastName time.Time // guarded by mu; the time in the name that was given last
	stats    Stats     // guarded by mu
	mistakes uint64    // guarded by mu; those of Stats.Dropped that were about no object
	mistaken time.Time // guarded by mu; when one of them was logged last
}

// Stats are counts since New.
type Stats struct {
	// Sent is how many requests were done: Events created, and counts of repeats patched.
	Sent uint64
	// Dropped is how many of the calls that say something were dropped: for a full queue, an
	// object's budget, an object that is nil, without a name or of an unknown kind, repeats of an
	// object that was forgotten for others (Config.Objects), or the end of the time to flush.
	Dropped uint64
	// Failed is how many of them came to nothing because the API server refused them,
	// or could not be reached for too long.
	Failed uint64
}

// New checks config and makes a Recorder. The error names all mistakes at once. It makes no
// request and starts nothing: events wait in the queue until Run.
func New(config Config) (*Recorder, error) {
	config, err := config.withDefaults()
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("event recorder: %w", err)
	}
	client, err := config.Cluster.RESTClient(eventsv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("event recorder: %w", err)
	}
	return &Recorder{
		config:  config,
		client:  client,
		backoff: retry.Defaults()[retry.Transient],
		wake:    make(chan struct{}, 1),
		objects: newObjects(config.Objects),
	}, nil
}

// Event says something about an object: what happened (reason: a CamelCase word for machines),
// what was done about it (action: the same), and more for people (note). eventType is
// corev1.EventTypeNormal, which "" is too, or corev1.EventTypeWarning, which all else is.
//
// It never blocks and never fails. What the API server would refuse is mended: reason and
// action are cut at 128 bytes, and stand in for each other when one is empty; the note is cut
// at 1024. Put what varies without meaning anything (times, attempts) elsewhere: an event is
// a repeat only when all of it is the same.
//
// A nil Recorder says nothing.
func (r *Recorder) Event(regarding corev1.ObjectReference, eventType, reason, action, note string) {
	switch {
	case r == nil:
	case regarding.Name == "":
		r.dropMistake(unnamed(regarding), reason, action)
	default:
		r.say(regarding, acceptable(eventType, reason, action, note), corev1.ObjectReference{}, nil)
	}
}

// say notes what is said of an object, which has a name. related, and the annotations, may be empty.
func (r *Recorder) say(regarding corev1.ObjectReference, what said, related corev1.ObjectReference, annotations map[string]string) {
	now := time.Now()
	what.related = related
	what.related.ResourceVersion = "" // another state of the same object
	r.mu.Lock()
	defer r.mu.Unlock()
	about, forgotten := r.objects.get(regarding, now, r.config.ObjectBurst)
	r.abandon(forgotten)
	about.forgetEnded(now.Add(-2 * r.config.RepeatInterval))
	if s, ok := about.series[what]; ok {
		s.repeat(now)
		if s.state == idle {
			r.await(s)
		}
		return
	}
	if len(r.queue) >= r.config.QueueSize || !about.take(now, r.config.ObjectBurst, r.config.ObjectInterval) {
		r.stats.Dropped++
		return
	}
	s := &series{object: about, said: what, event: r.newEvent(regarding, what, now), state: queued, count: 1, last: now}
	s.event.Annotations = maps.Clone(annotations)
	if related != (corev1.ObjectReference{}) {
		s.event.Related = &related
	}
	about.series[what] = s
	r.queue = append(r.queue, s)
	r.signal()
}

// Stats returns what was done so far.
func (r *Recorder) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// newEvent makes the Event that will be created. r.mu must be held.
func (r *Recorder) newEvent(regarding corev1.ObjectReference, what said, now time.Time) eventsv1.Event {
	named := now
	if !named.After(r.lastName) { // two in one tick of the clock
		named = r.lastName.Add(1)
	}
	r.lastName = named
	return eventsv1.Event{
		// The scheme of a Cluster does not have the type, so that it must say its own.
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(regarding),
			Name:      nameOf(regarding.Name, uint64(named.UnixNano())),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: r.config.Controller,
		ReportingInstance:   r.config.Instance,
		Regarding:           regarding,
		Type:                what.eventType,
		Reason:              what.reason,
		Action:              what.action,
		Note:                what.note,
	}
}

// rename gives a series a name that nobody else has.
func (r *Recorder) rename(s *series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.event.Name = nameOf(s.event.Regarding.Name, rand.Uint64())
}

// await lets a series wait until its repeats may be sent. r.mu must be held.
func (r *Recorder) await(s *series) {
	s.state = waiting
	r.waiting = append(r.waiting, s)
	r.signal()
}

// abandon gives up what waits of an object that is forgotten; nil is none. What is queued is
// still sent. r.mu must be held.
func (r *Recorder) abandon(forgotten *object) {
	if forgotten == nil {
		return
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(s *series) bool {
		if s.object != forgotten {
			return false
		}
		r.stats.Dropped += s.unsent()
		return true
	})
}

// next takes the series that is to be sent now, or returns nil and how long that may take.
// New events come before the counts of old ones. With flush, nothing waits any longer.
func (r *Recorder) next(flush bool) (*series, time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 {
		s := r.queue[0]
		r.queue[0] = nil // for the garbage collector
		r.queue = r.queue[1:]
		s.state = sending
		return s, 0
	}
	if len(r.waiting) == 0 {
		return nil, time.Hour // or until it is signalled
	}
	first := 0
	for i, s := range r.waiting {
		if s.due.Before(r.waiting[first].due) {
			first = i
		}
	}
	s := r.waiting[first]
	if wait := s.due.Sub(now); wait > 0 && !flush {
		return nil, wait
	}
	r.waiting = slices.Delete(r.waiting, first, first+1)
	s.state = sending
	return s, 0
}

// succeeded notes that the API server has the event with the given count.
func (r *Recorder) succeeded(s *series, count int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Sent++
	s.state, s.created, s.sent = idle, true, count
	s.due = time.Now().Add(r.config.RepeatInterval)
	if s.count > count {
		r.await(s)
	}
}

// gaveUp notes that the API server will not have the event. The next one like it is a new one.
func (r *Recorder) gaveUp(s *series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Failed += s.unsent()
	s.state = idle
	delete(s.object.series, s.said)
}

// dropRest drops everything that is not sent, and forgets it: if Run is called again, what is
// said then is new.
func (r *Recorder) dropRest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Concat(r.queue, r.waiting) {
		r.stats.Dropped += s.unsent()
		s.state = idle
		delete(s.object.series, s.said)
	}
	r.queue, r.waiting = nil, nil
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // it was not taken yet, which will do for this one too
	}
}
