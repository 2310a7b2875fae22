// Package testlength selects how long random and large tests run: with a bounded count in "make test", and at full
// length in "make test-all", which sets EVENKEEL_LONG=1.
package testlength

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// Count returns full if the environment variable EVENKEEL_LONG is 1, otherwise bounded. A test must test the same
// contract with both counts.
func Count(bounded, full int) int {
	if os.Getenv("EVENKEEL_LONG") == "1" {
		return full
	}
	return bounded
}

// OnlyLong skips a test that starts a real cluster, or builds programs for minutes, unless EVENKEEL_LONG is 1.
func OnlyLong(tb testing.TB) {
	tb.Helper()
	if Count(0, 1) == 0 {
		tb.Skip("runs in make test-all, with EVENKEEL_LONG=1")
	}
}

// OnlyWithoutRaceDetector skips a test in a build with the race detector. It is for tests of one goroutine that use the
// processor for long, and for tests that measure memory: the race detector makes them ten times slower, finds nothing
// in one goroutine, and changes what they measure. "make test" runs them without it. Code that several goroutines run
// needs another test, which is not skipped.
func OnlyWithoutRaceDetector(tb testing.TB) {
	tb.Helper()
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		tb.Skip("runs without the race detector, in make test")
	}
}
