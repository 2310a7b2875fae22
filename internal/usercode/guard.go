package usercode

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// PanicError is the error of a function that panicked or called runtime.Goexit.
type PanicError struct {
	// Name names the function.
	Name string
	// Value is what was passed to panic, or errGoexit.
	Value any
	// Stack is the stack of the panic, as runtime/debug.Stack prints it.
	Stack []byte
}

// errGoexit is the Value for a function that called runtime.Goexit.
var errGoexit = errors.New("it called runtime.Goexit, as t.FailNow does: return an error instead")

// Error implements error. The stack is not in it.
func (e *PanicError) Error() string {
	if e.Value == errGoexit { //nolint:errorlint // the value itself
		return e.Name + ": " + errGoexit.Error()
	}
	return e.Name + " panicked: " + ValueText(e.Value)
}

// Unwrap returns the value of the panic when it was an error that errors.Is and errors.As can walk.
func (e *PanicError) Unwrap() error { return ValueError(e.Value) }

// ValueText returns the value of a panic as text.
func ValueText(value any) string {
	if err, ok := value.(error); ok {
		return Text(err)
	}
	return Shorten(fmt.Sprint(value)) // fmt recovers from panics in methods of value
}

// ValueError returns the value of a panic when it is an error that can be walked, otherwise nil.
func ValueError(value any) error {
	if err, ok := value.(error); ok && Sound(err) {
		return err
	}
	return nil
}

// Guard calls functions that a user of the library wrote. A panic in one of them does not end the process, and
// runtime.Goexit does not end the goroutine of the library that calls it: the first failure of each function is logged
// at error level with its stack, and further ones at debug level without it. A nil *Guard logs nothing.
//
// It is safe for concurrent use. Made by NewGuard.
type Guard struct {
	mu     sync.Mutex
	logger *slog.Logger    // guarded by mu
	logged map[string]bool // guarded by mu; functions whose stack was logged
}

// NewGuard returns a Guard that logs to logger.
func NewGuard(logger *slog.Logger) *Guard {
	return &Guard{logger: logger, logged: map[string]bool{}}
}

// SetLogger changes the logger.
func (g *Guard) SetLogger(logger *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logger = logger
}

// Call calls f, and returns nil, or a *PanicError if f panicked or called runtime.Goexit. name names the function in
// the log; attrs are further attributes for the log, and are called only after a failure.
//
// f runs on a goroutine of its own, because runtime.Goexit cannot be recovered: that costs 1 us.
func (g *Guard) Call(name string, f func(), attrs func() []any) (failed *PanicError) {
	called := make(chan struct{})
	go func() { // waited for below
		returned := false
		defer func() {
			if !returned {
				failed = &PanicError{Name: name, Value: errGoexit, Stack: debug.Stack()}
			}
			close(called)
		}()
		failed = Recover(name, f)
		returned = true
	}()
	<-called
	if failed != nil {
		g.log(failed, attrs)
	}
	return failed
}

// Recover is Call for a function that does not call runtime.Goexit: f runs on the caller's goroutine.
func Recover(name string, f func()) (failed *PanicError) {
	defer func() {
		if value := recover(); value != nil {
			failed = &PanicError{Name: name, Value: value, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// Try is Call for a function that returns an error, which it makes safe to use: see Error.
func (g *Guard) Try(name string, f func() error) (err error) {
	if failed := g.Call(name, func() { err = f() }, nil); failed != nil {
		return failed
	}
	return Error(err)
}

// Report logs the panics in err, which wraps or joins what Call has returned, as Call does.
func (g *Guard) Report(err error) {
	if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
		g.log(panicked, nil)
	}
}

// log logs a failure, the first one of each function with its stack.
func (g *Guard) log(failed *PanicError, attrs func() []any) {
	if g == nil {
		return
	}
	g.mu.Lock()
	known := g.logged[failed.Name]
	g.logged[failed.Name] = true
	logger := g.logger
	g.mu.Unlock()
	args := []any{"function", failed.Name, "error", ValueText(failed.Value)}
	if attrs != nil {
		args = append(args, attrs()...)
	}
	log := logger.Error
	if known {
		log = logger.Debug
	} else {
		args = append(args, "stack", string(failed.Stack))
	}
	if failed.Value == errGoexit { //nolint:errorlint // the value itself
		log("function called runtime.Goexit", args...)
	} else {
		log("function panicked", args...)
	}
}

// Value returns what f returns, or instead if f panics or calls runtime.Goexit: see Guard.Call.
func Value[V any](g *Guard, name string, instead V, f func() V) (v V) {
	v = instead
	if g.Call(name, func() { v = f() }, nil) != nil {
		return instead
	}
	return v
}
