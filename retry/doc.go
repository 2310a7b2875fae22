// Package retry decides when a failed key is retried. Classify assigns each error to a class. Each class has
// a Policy: the delays, the number of retries and the log level. Users can replace every field (Config).
//
// New validates a Config and returns Rules. Rules have no state: Decide returns the next delay for an error
// and the number of failures in a row.
//
//	class := rules.Classify(failed)
//	...
//	decision := rules.Decide(class, failed, failures)
//
// Failures serves packages that classify errors in another way, such as package client, which has reasons.
//
// Package retry depends on neither queues nor controllers, and starts no timers.
package retry
