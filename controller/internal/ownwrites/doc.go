// Package ownwrites tracks what the runs of each key wrote, until the informers show it. It gives a controller two
// guarantees:
//
//   - A handler sees its own writes: a key that is ready is held until the informers show the writes of its last run.
//   - An own write does not run its key again: its event is an echo, and the controller skips it.
//
// An own write is a write that the API server performed for a request of a run: one that was made with the context of
// the run's handler, before the handler returned. An echo is an event that contains nothing but an own write: the state
// before it was reported by an informer, and only the write lies between the two states. The resource version alone
// does not prove this; see ownWrite. If there is any doubt, an event is not an echo: a run too many is harmless, and a
// missed change of another client is not.
//
// The life of an own write:
//
//  1. Before a request is sent, Run.State returns the known state of the object. It is the start of the proof that the
//     event of the write is an echo.
//  2. When the response has arrived, and before the handler receives it, Run.Record reads it, derives how the informers
//     will show the write, and records it. From then on, Tracker.IsEcho recognizes its event. If the informer was
//     faster than the response, Record removes the cause of the event from the queue. The controller checks an event
//     before and after it enqueues the key, because Record may be called between the two.
//  3. After the run, Run.End asks the informers of the written kind to report when they show the write. The last report
//     removes the record, so nothing is kept for idle keys.
//  4. If the key is ready earlier, Tracker.Hold returns how long it must wait, and the last report releases it. No
//     worker waits. The wait ends after Config.Timeout; while an informer reports that it cannot show the write, it is
//     extended up to MaxTimeouts times.
//
// Only writes of the last run are tracked, because no run starts before they are shown or given up. Kinds without an
// informer are not tracked: a handler cannot read them from a cache, and no event runs a key.
package ownwrites
