// Package detect detects problems of a controller that would otherwise go unnoticed: keys that run and write again
// and again without progress (HotLoops), handlers that hang (StackOf), and a queue that only grows (Growth). It also
// prevents the same line from filling the log (Repeats). The controller itself detects keys that never succeed.
//
// The package only processes data: it has no goroutines, timers or clocks. The controller passes the events and the
// current time, and acts on the results.
//
// A false alarm is worse than a late one: it slows down a healthy key, and teaches people to ignore alarms. Therefore
// each detector waits for evidence that has no harmless explanation, and its comment describes that evidence. Each
// detector reports an episode once.
package detect
