// Package testlength selects how long random and large tests run: with a bounded count in "make test", and at full
// length in "make test-all", which sets EVENKEEL_LONG=1.
package testlength

import "os"

// Count returns full if the environment variable EVENKEEL_LONG is 1, otherwise bounded. A test must test the same
// contract with both counts.
func Count(bounded, full int) int {
	if os.Getenv("EVENKEEL_LONG") == "1" {
		return full
	}
	return bounded
}
