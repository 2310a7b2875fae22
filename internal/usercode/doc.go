// Package usercode calls functions that users of the library wrote, and reads the errors that they
// returned, so that a panic or an endless error in them ends neither the process nor a worker.
//
// A panic is recovered where the function is called, and its stack is logged once for each
// function. runtime.Goexit cannot be recovered: it ends the goroutine.
package usercode
