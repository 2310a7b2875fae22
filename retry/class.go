package retry

// Class is a kind of failure that asks for a policy of its own. The constants are those that
// Classify returns; users add others (Config.Classify, WithClass), of a small fixed set,
// because a class is a metric's label.
type Class string

// The classes, from the one that least deserves patience to the one that deserves most.
const (
	// Terminal: trying again is useless until something changes. Never retried. Errors that
	// say so themselves are of it (see WithClass), no answer of the API server is.
	Terminal Class = "terminal"
	// Panic: the handler panicked. Whoever runs the handler says so.
	Panic Class = "panic"
	// Invalid: the API server refuses what the request says (400, 405, 406, 413, 415, 422), or
	// another field manager owns a field that was applied (409 with causes). It will refuse
	// the same again, until somebody changes the object or a webhook.
	Invalid Class = "invalid"
	// Forbidden: 401 or 403: a Role, a quota, a token, or a namespace that is being deleted.
	Forbidden Class = "forbidden"
	// Default: everything else: errors of the handler's own, 404, AlreadyExists.
	Default Class = "error"
	// Timeout: the run's own time limit has passed. Whoever runs the handler says so.
	Timeout Class = "timeout"
	// Throttled: the server asks to be asked less: 429, or 5xx with a Retry-After.
	Throttled Class = "throttled"
	// Transient: the request was fine and the way or the server was not: other 5xx, an expired
	// list (410), a request's time limit, a connection that was refused, reset or cut.
	Transient Class = "transient"
	// Conflict: the object has changed since it was read (409). AlreadyExists is not of it.
	Conflict Class = "conflict"
)

// Classes lists every Class that this package knows, in the order of the constants, for
// whoever wants to show zeros.
func Classes() []Class {
	return []Class{Terminal, Panic, Invalid, Forbidden, Default, Timeout, Throttled, Transient, Conflict}
}

// patience is the class's place in Classes; users' classes stand beside Default.
func (c Class) patience() int {
	others := 0
	for i, class := range Classes() {
		if c == class {
			return i
		}
		if class == Default {
			others = i
		}
	}
	return others
}

// worse returns the class of two failures of one run: the more permanent one, because the run
// as a whole cannot succeed before that one is gone. Of equals it is the first.
func worse(a, b Class) Class {
	if a == "" || b != "" && b.patience() < a.patience() {
		return b
	}
	return a
}

// A Classed error says its own class, of itself and of all that it wraps. An empty class means
// that it is no failure at all, which leaves the word to the errors that it is joined with.
type Classed interface {
	error
	RetryClass() Class
}

// WithClass returns err with a class that Classify will find, whatever err wraps.
// WithClass(nil, class) is nil.
func WithClass(err error, class Class) error {
	if err == nil {
		return nil
	}
	return &classedError{error: err, class: class}
}

type classedError struct {
	error
	class Class
}

func (e *classedError) RetryClass() Class { return e.class }
func (e *classedError) Unwrap() error     { return e.error }
