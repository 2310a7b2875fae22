package event

import (
	"container/list"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity contains the fields by which events about one object are repeats of each other.
type identity struct {
	eventType, reason, action, note string
}

// state is the state of a series.
type state int

const (
	idle    state = iota // in no list: every repeat was sent, dropped or has failed
	queued               // in Recorder.queue
	waiting              // in Recorder.waiting: repeats are sent when due
	sending              // in no list: Run is sending it
)

// series is one Event and its repeats. Guarded by Recorder.mu.
type series struct {
	object *object
	id     identity
	event  eventsv1.Event // the Event without its count; only its name may change

	state   state
	created bool // the API server has stored the Event, which may have expired since
	count   int32
	last    time.Time // of the last repeat
	sent    int32     // the last count that was sent
	due     time.Time // when it may be sent

	// createAttempted is used by Run only. If it is true, an existing Event with this name belongs to this Recorder.
	createAttempted bool
}

func (s *series) repeat(now time.Time) {
	if s.count < math.MaxInt32 {
		s.count++
	}
	s.last = now
}

// unsent returns the number of recorded events that the API server does not count yet.
func (s *series) unsent() uint64 { return uint64(s.count - s.sent) }

// toEvent returns a copy of the Event with the current count.
func (s *series) toEvent() *eventsv1.Event {
	event := s.event.DeepCopy()
	if s.count > 1 { // the API server rejects a series with count 1
		event.Series = &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
	}
	return event
}

// object has the budget and the series of one object. Guarded by Recorder.mu.
type object struct {
	regarding corev1.ObjectReference
	tokens    float64 // the number of new series that the budget allows
	refilled  time.Time
	series    map[identity]*series
}

// takeToken refills the budget and takes one token. It returns false if the budget is empty.
func (o *object) takeToken(now time.Time, burst int, interval time.Duration) bool {
	o.tokens = min(float64(burst), o.tokens+float64(now.Sub(o.refilled))/float64(interval))
	o.refilled = now
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// removeIdle removes idle series without a repeat since this time.
func (o *object) removeIdle(since time.Time) {
	for id, s := range o.series {
		if s.state == idle && s.last.Before(since) {
			delete(o.series, id)
		}
	}
}

// objects is an LRU cache of the objects of recent events. Guarded by Recorder.mu.
type objects struct {
	limit  int
	byRef  map[corev1.ObjectReference]*list.Element
	latest *list.List // of *object; the most recent one is in front
}

func newObjects(limit int) objects {
	return objects{limit: limit, byRef: map[corev1.ObjectReference]*list.Element{}, latest: list.New()}
}

// get returns the object, or a new one with a full budget. evicted is the object that it removed to make room, or
// nil.
func (o objects) get(regarding corev1.ObjectReference, now time.Time, burst int) (found, evicted *object) {
	regarding.ResourceVersion = "" // another state of the same object
	if element, ok := o.byRef[regarding]; ok {
		o.latest.MoveToFront(element)
		return element.Value.(*object), nil
	}
	if o.latest.Len() >= o.limit {
		oldest := o.latest.Back()
		evicted = o.latest.Remove(oldest).(*object)
		delete(o.byRef, evicted.regarding)
	}
	found = &object{regarding: regarding, tokens: float64(burst), refilled: now, series: map[identity]*series{}}
	o.byRef[regarding] = o.latest.PushFront(found)
	return found, evicted
}
