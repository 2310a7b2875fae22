// Package detect notices the problems that a controller would otherwise keep to itself: keys
// that are run and write again and again without progress (HotLoops), handlers that hang
// (StackOf), a queue that only grows (Growth); and it keeps the same line from filling the log
// (Repeats). Keys that never succeed are seen by the controller itself.
//
// All of it is data: no goroutines, no timers, no clocks. The controller tells what happens and
// what time it is, and does what is to be done about the answers.
//
// A false alarm is worse than a late one: it slows down a key that is well, and teaches people
// not to look. Each detector therefore waits for evidence that has no harmless explanation, and
// says in its comment what that is. Each tells of an episode once.
package detect
