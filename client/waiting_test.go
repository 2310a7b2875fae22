package client

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WaitFor pauses up to 10 s after failures. The pauses double, and are up to a quarter shorter, so that clients do not
// retry together.
func TestPausesDoubleUpToTenSeconds(t *testing.T) {
	t.Parallel()
	for failures, want := range []time.Duration{
		200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
		3200 * time.Millisecond, 6400 * time.Millisecond, 10 * time.Second, 10 * time.Second,
	} {
		for range 20 {
			if got := pause(failures); got > want || got < want*3/4 {
				t.Errorf("the pause after %d more failures is %s, want %s or up to a quarter less", failures, got, want)
			}
		}
	}
}

// The deletionTimestamp of an object is the end of its grace period. The error of WaitDeleted shows when the deletion
// was requested.
func TestReasonOfAnExistingObjectShowsTimeOfDeleteRequest(t *testing.T) {
	t.Parallel()
	end := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for seconds, want := range map[int64]string{0: "since 2026-01-02T03:04:05Z", 30: "since 2026-01-02T03:03:35Z"} {
		text := holds(metav1.ObjectMeta{DeletionTimestamp: &end, DeletionGracePeriodSeconds: &seconds}, "u1")
		if !strings.Contains(text, want) {
			t.Errorf("with a grace period of %d s, the reason is %q, want %q", seconds, text, want)
		}
	}
}
