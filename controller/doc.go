// Package controller is the loop: a Retriever and a Handler make a Controller.
//
// The way of an event: the informer stores an object and announces the change; the
// controller puts the object's key, with the cause, into its workqueue; a worker takes
// the key, reads the object, and calls the Handler; the Handler's answer decides when
// the key is run again.
package controller
