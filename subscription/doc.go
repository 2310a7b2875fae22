// Package subscription tells by a channel what happens to objects, for programs that want that
// and no controller: a proxy that reads its routes, a command that shows what goes on, a cache
// of something derived.
//
// A Subscription has three channels; ask for the one that fits:
//
//   - Signals: something has changed. For those who then look at everything (Informer().List).
//   - Objects: each object that came or changed, in its newest state.
//   - Events: objects that came, changed and went, consistent over broken watches, so that a
//     receiver can keep a copy of what there is.
//
// What it is not: a log. Changes that follow each other before the receiver comes to them are
// one. Whoever must act on objects until they are right, and try again where that fails, wants
// package controller.
//
// Which objects: that is the Retriever's selection (informer.RetrieveSelected). It lists and
// watches with the informer's back-off, and opens what breaks.
package subscription
