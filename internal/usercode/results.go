package usercode

// TerminalError is the error that controller.Terminal returns.
type TerminalError struct{ Err error }

// Error implements error.
func (e *TerminalError) Error() string {
	if e.Err == nil {
		return "terminal"
	}
	return "terminal: " + Text(e.Err)
}

// Unwrap returns the marked error, for errors.Is and errors.As.
func (e *TerminalError) Unwrap() error { return e.Err }

// HandlerPanicError is the error of a run in which the handler panicked.
type HandlerPanicError struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the panic, as runtime/debug.Stack prints it.
	Stack []byte
}

// Error implements error. It omits the stack, which would otherwise be logged at every retry.
func (e *HandlerPanicError) Error() string { return "handler panicked: " + ValueText(e.Value) }

// Unwrap returns the panic's value if it is an error, unless that error wraps itself.
func (e *HandlerPanicError) Unwrap() error { return ValueError(e.Value) }
