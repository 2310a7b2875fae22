package retry

// Config configures how failures are classified and retried. The zero value uses Classify and the defaults in
// docs/architecture.md.
type Config struct {
	// Classify returns the class of an error, or "" to fall back to the package's Classify. It may
	// return classes of the user. It must be safe for concurrent use. Default: the package's Classify.
	Classify func(error) Class
	// Every applies to every class: Config{Every: Policy{MaxRetries: 10}} gives up a key after its
	// tenth retry of errors of one class. Zero fields take the default of the class.
	Every Policy
	// Policies apply to single classes. Zero fields take the value of Every; in a class of the user,
	// the value of class Default.
	Policies map[Class]Policy
}
