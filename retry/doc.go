// Package retry configures when a failed key is retried. Classify assigns each error to a class. Each class has a
// Policy: the delays, the number of retries and the log level. Config, which is Config.Retry of a controller, can
// replace all of them. Errors can name their own class (WithClass).
//
// Package retry depends on neither queues nor controllers, and starts no timers.
package retry
