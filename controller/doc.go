// Package controller runs a Handler for the objects of a Retriever.
//
// Event path: the informer stores an object and reports the change; the controller enqueues the object's key with the
// cause; a worker takes the key, reads the object and calls the Handler; the Handler's result decides when the key runs
// again.
package controller
