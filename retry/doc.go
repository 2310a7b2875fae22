// Package retry says when a key whose run has failed is run again: errors are sorted into
// classes (Classify), and each class has a policy (Policy): a curve of delays, a number of
// attempts, a volume in the log. All of it is data that users replace field by field (Config).
//
// New checks a Config and makes Rules of it, which answer one question without any state:
// a key has failed so often in a row, now with this error; what next?
//
//	class := rules.Classify(failed)
//	...
//	decision := rules.Decide(class, failed, failures)
//
// Failures is for those who sort errors in another way, as package client does by reasons.
//
// It knows nothing of queues or controllers, and keeps no time.
package retry
