// Package event records Events (events.k8s.io/v1) about objects, which kubectl describe shows below an object.
//
// A Recorder never blocks its caller: it queues events and sends them in the background. Failures can produce
// many events, and events are the least important requests of a process. Therefore repeats become one Event
// with a count, each object has a budget, the queue is bounded, and the Recorder drops and counts events
// beyond these limits. Programs must not rely on the delivery of Events.
//
//	events.Warning(web, "Stalled", "Retry", "%s is away", "the database")
//
// Normal and Warning take an object, Event an object reference. Programs that need a related object or annotations
// create an Event of k8s.io/api/events/v1 with client.Create.
//
// Event path:
//
//  1. The Recorder shortens values that the API server would reject, and looks for an equal event about the same
//     object. If it finds one, it increments its count.
//  2. Otherwise it takes one event from the object's budget and queues the new event.
//  3. Run creates the Event. Later it sends the count of repeats as one patch every RepeatInterval.
//  4. If an event is not repeated for twice that time, the next one becomes a new Event.
//
// Events stay in the queue until Run is called. A Recorder that does not run logs a warning when events have
// waited for a minute, and when it drops events because the queue is full.
//
// The process needs create and patch of events in the API group events.k8s.io, in the namespaces of the objects,
// and in namespace default for cluster-scoped objects.
package event
