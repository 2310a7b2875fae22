// Package usercode treats what users of the library pass to it. It calls their functions and reads the errors that
// these return, so that a panic or an endless error in them ends neither the process nor a worker. It collects the
// mistakes in a Config. Packages retry and internal/retryrules classify errors with it.
//
// Guard.Call is the one way to call a user's function on a goroutine of the library: a panic and runtime.Goexit become
// errors, and the stack is logged once for each function. Handlers are the exception: they run on the goroutine of a
// worker, which is replaced if it ends.
package usercode
