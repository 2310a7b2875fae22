package retry

// Class groups failures that share a retry policy. Classify returns one of the constants. Users may add
// classes (Config.Classify, WithClass). They must come from a small fixed set, because each class becomes a
// metric label.
type Class string

// The classes, from the most permanent failure to the shortest one.
const (
	// Terminal: the failure lasts until something changes. It is never retried. Only errors that state
	// this class (WithClass) have it; no response of the API server has.
	Terminal Class = "terminal"
	// Panic: the handler panicked. The controller sets this class.
	Panic Class = "panic"
	// Invalid: the API server rejects the content of the request (400, 405, 406, 413, 415, 422), or
	// another field manager owns an applied field (409 with causes). The same request fails again until
	// the object or a webhook changes.
	Invalid Class = "invalid"
	// Forbidden: 401 or 403, caused by a Role, a quota or a token.
	Forbidden Class = "forbidden"
	// Default: all other errors: the handler's own, 404, AlreadyExists.
	Default Class = "error"
	// Timeout: the handler exceeded its time limit. The controller sets this class.
	Timeout Class = "timeout"
	// Throttled: the server asks for fewer requests: 429, or 5xx with a Retry-After.
	Throttled Class = "throttled"
	// Transient: the server or the network failed: other 5xx, an expired list (410), the timeout of a
	// request, a connection that was refused, reset or closed.
	Transient Class = "transient"
	// Conflict: the object has changed since it was read (409). AlreadyExists is not a Conflict.
	Conflict Class = "conflict"
	// NamespaceTerminating: an object cannot be created, because its namespace is being deleted. If that is the
	// namespace of the controller's object, the controller does not retry until the object changes.
	NamespaceTerminating Class = "namespaceTerminating"
)

// classes returns every Class of this package in the order of the constants.
func classes() []Class {
	return []Class{
		Terminal, Panic, Invalid, Forbidden, Default, Timeout, Throttled, Transient, Conflict, NamespaceTerminating,
	}
}

// rank returns the class's index in classes: a lower rank is more permanent. Classes of users have the rank
// of Default.
func (c Class) rank() int {
	defaultRank := 0
	for i, class := range classes() {
		if c == class {
			return i
		}
		if class == Default {
			defaultRank = i
		}
	}
	return defaultRank
}

// mostPermanent returns the class of two failures in one error: the more permanent one, because the handler
// cannot succeed before that failure ends. Of two classes with the same rank it returns a.
func mostPermanent(a, b Class) Class {
	if a == "" || b != "" && b.rank() < a.rank() {
		return b
	}
	return a
}

// WithClass returns an error that wraps err and for which Classify returns class, whatever err wraps. An empty class
// means that the error is not a failure: in a joined error it is ignored. WithClass(nil, class) is nil.
//
// A type of errors of the program determines its class with a method RetryClass() Class.
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
