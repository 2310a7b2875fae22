// Package usercode treats what users of the library pass to it. It calls their functions and reads the errors that
// these return, so that a panic or an endless error in them ends neither the process nor a worker. It collects the
// mistakes in a Config. Packages retry and internal/retryrules classify errors with it.
//
// A panic is recovered where the function is called, and its stack is logged once for each
// function. runtime.Goexit cannot be recovered: it ends the goroutine.
package usercode
