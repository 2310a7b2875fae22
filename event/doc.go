// Package event tells people about objects, in Events (events.k8s.io/v1): what kubectl describe
// shows below an object.
//
// A Recorder takes events without ever making its caller wait, and sends them in the
// background. Events are the least important requests of a process, and the ones that come in
// floods when something is wrong. So what is said again becomes one Event with a count, each
// object has a budget, the queue is bounded, and what exceeds these is dropped and counted:
// an Event is a service to people, never a record to build on.
//
//	events.Warning(web, "Stalled", "Retry", "%s is away", "the database")
//
// Normal and Warning take the object, Record a related one and annotations besides, and Event a
// reference, from those who have no object.
//
// A flow of one event:
//
//  1. Event cuts what the API server would refuse, and looks for the same event about the
//     same object. If there is one, its count grows, and nothing else happens for now.
//  2. Otherwise the object's budget is asked, and the event is queued.
//  3. Run creates it. From then on repeats are sent as one patch every RepeatInterval.
//  4. When there was no repeat for twice that long, the next one is a new Event.
//
// The Role of the process needs create and patch of events in the API group events.k8s.io, in
// the namespaces of the objects, and in namespace default for objects that are in none.
package event
