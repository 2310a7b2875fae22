// Package subscription delivers changes of objects through channels, for programs that need no controller: a proxy that
// reads its routes, a command that shows changes, a cache of derived data.
//
// A Subscription has three channels:
//
//   - Signals: something has changed. For programs that then read all objects (Informer.List).
//   - Objects: each object that was added or changed, in its newest state.
//   - Events: objects that were added, changed and deleted, also across broken watches, so that a receiver can keep a
//     copy of all objects.
//
// It is not a log: successive changes of an object are merged until the receiver is ready. Use package controller to
// process objects until that succeeds, with retries.
//
// The informer selects the objects (informer.RetrieveSelected). It lists and watches with its backoff, and
// reopens broken watches.
package subscription
