package event

import (
	"container/list"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// said is what an event says; about the same object, the same again is a repeat.
type said struct {
	eventType, reason, action, note string
	related                         corev1.ObjectReference // without a resourceVersion
}

// state is where a series is.
type state int

const (
	idle    state = iota // everything is sent, as far as is known
	queued               // in Recorder.queue
	waiting              // in Recorder.waiting: repeats are to be sent, not before due
	sending              // taken by Run
)

// series is one Event and its repeats. Guarded by Recorder.mu.
type series struct {
	object *object
	said   said
	event  eventsv1.Event // as it is created, without a series; only its name may change

	state   state
	created bool // the API server has it, unless it has expired there
	count   int32
	last    time.Time // of the last repeat
	sent    int32     // the count that the API server has
	due     time.Time // when the next count may be sent

	// Owned by Run: the server may have an Event of this name, and then it is ours.
	tried bool
}

func (s *series) repeat(now time.Time) {
	if s.count < math.MaxInt32 {
		s.count++
	}
	s.last = now
}

// unsent is how many calls the API server has not been told of.
func (s *series) unsent() uint64 { return uint64(s.count - s.sent) }

// whole returns the event with its repeats so far.
func (s *series) whole() *eventsv1.Event {
	event := s.event.DeepCopy()
	if s.count > 1 { // the API server refuses a series of one
		event.Series = &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
	}
	return event
}

// object is what is remembered of an object that events speak of. Guarded by Recorder.mu.
type object struct {
	regarding corev1.ObjectReference
	tokens    float64 // how many new series it may begin
	at        time.Time
	series    map[said]*series
}

// take takes a token, if there is one.
func (o *object) take(now time.Time, burst int, interval time.Duration) bool {
	o.tokens = min(float64(burst), o.tokens+float64(now.Sub(o.at))/float64(interval))
	o.at = now
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// forgetEnded forgets series that had no repeat since.
func (o *object) forgetEnded(since time.Time) {
	for said, s := range o.series {
		if s.state == idle && s.last.Before(since) {
			delete(o.series, said)
		}
	}
}

// objects are the last of the objects that were spoken of. Guarded by Recorder.mu.
type objects struct {
	most   int
	byRef  map[corev1.ObjectReference]*list.Element
	latest *list.List // of *object; the front was spoken of last
}

func newObjects(most int) objects {
	return objects{most: most, byRef: map[corev1.ObjectReference]*list.Element{}, latest: list.New()}
}

// get returns the object, which may be a new one with a full budget, and the one that had to
// be forgotten for it, or nil.
func (o objects) get(regarding corev1.ObjectReference, now time.Time, burst int) (found, forgotten *object) {
	regarding.ResourceVersion = "" // another state of the same object
	if element, ok := o.byRef[regarding]; ok {
		o.latest.MoveToFront(element)
		return element.Value.(*object), nil
	}
	if o.latest.Len() >= o.most {
		oldest := o.latest.Back()
		forgotten = o.latest.Remove(oldest).(*object)
		delete(o.byRef, forgotten.regarding)
	}
	found = &object{regarding: regarding, tokens: float64(burst), at: now, series: map[said]*series{}}
	o.byRef[regarding] = o.latest.PushFront(found)
	return found, forgotten
}
