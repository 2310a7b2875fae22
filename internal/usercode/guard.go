package usercode

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// PanicError is the error of a function that panicked.
type PanicError struct {
	// Name names the function.
	Name string
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the panic, as runtime/debug.Stack prints it.
	Stack []byte
}

// Error implements error. The stack is not in it.
func (e *PanicError) Error() string { return e.Name + " panicked: " + ValueText(e.Value) }

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

// Guard calls functions that a user of the library wrote. A panic in one of them does not end the
// process: the first panic of each function is logged at error level with its stack, and further
// ones at debug level without it. A nil *Guard recovers and logs nothing.
//
// It is safe for concurrent use. Made by NewGuard.
type Guard struct {
	logger *slog.Logger

	mu     sync.Mutex
	logged map[string]bool // guarded by mu; functions whose stack was logged
}

// NewGuard returns a Guard that logs to logger.
func NewGuard(logger *slog.Logger) *Guard {
	return &Guard{logger: logger, logged: map[string]bool{}}
}

// Call calls f. It returns nil, or a *PanicError when f panicked. name names the function in the
// log; attrs are further attributes for the log, and are called only after a panic.
func (g *Guard) Call(name string, f func(), attrs func() []any) (failed *PanicError) {
	defer func() {
		if value := recover(); value != nil {
			failed = &PanicError{Name: name, Value: value, Stack: debug.Stack()}
			g.log(failed, attrs)
		}
	}()
	f()
	return nil
}

// Report logs the panics in err, which wraps or joins what Call has returned, as Call does.
func (g *Guard) Report(err error) {
	if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
		g.log(panicked, nil)
	}
}

// log logs a panic, the first one of each function with its stack.
func (g *Guard) log(failed *PanicError, attrs func() []any) {
	if g == nil {
		return
	}
	g.mu.Lock()
	known := g.logged[failed.Name]
	g.logged[failed.Name] = true
	g.mu.Unlock()
	args := []any{"function", failed.Name, "error", ValueText(failed.Value)}
	if attrs != nil {
		args = append(args, attrs()...)
	}
	if known {
		g.logger.Debug("function panicked again", args...)
		return
	}
	g.logger.Error("function panicked", append(args, "stack", string(failed.Stack))...)
}

// Value returns what f returns, or instead when f panics: see Guard.Call.
func Value[V any](g *Guard, name string, instead V, f func() V) (v V) {
	v = instead
	if g.Call(name, func() { v = f() }, nil) != nil {
		return instead
	}
	return v
}
