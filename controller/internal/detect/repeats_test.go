package detect

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestRepeats(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	a, b := kube.Key{Name: "a"}, kube.Key{Name: "b"}
	r := NewRepeats()
	for i, step := range []struct {
		key        kube.Key
		text       string
		after      time.Duration // since the start
		ok         bool
		suppressed int
	}{
		{a, "x", 0, true, 0},
		{a, "x", 0, false, 0},
		{b, "x", 0, true, 0},
		{a, "y", 0, true, 0},
		{a, "x", time.Second - 1, false, 0},
		{a, "x", time.Second, true, 2},
		{a, "x", 2*time.Second - 1, false, 0}, // a second since the last output, not since the last call
		{a, "x", 2 * time.Second, true, 1},
		{a, "x", 9 * time.Second, true, 0},
		{b, "x", 9 * time.Second, true, 0},
	} {
		ok, suppressed := r.Allow(step.key, step.text, start.Add(step.after))
		if ok != step.ok || suppressed != step.suppressed {
			t.Errorf("step %d: %t, %d suppressed; want %t, %d", i, ok, suppressed, step.ok, step.suppressed)
		}
	}
}

func TestRepeatsAreBounded(t *testing.T) {
	t.Parallel()
	r := NewRepeats()
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	for i := range 5000 {
		r.Allow(kube.Key{Name: fmt.Sprint(i)}, "x", now)
		r.Allow(kube.Key{Name: "often"}, "x", now)
	}
	if n := len(r.recent) + len(r.older); n > maxRepeats || n < maxRepeats/2 {
		t.Errorf("%d lines are remembered, want at most %d", n, maxRepeats)
	}
	if ok, _ := r.Allow(kube.Key{Name: "often"}, "x", now); ok {
		t.Error("what comes often was forgotten")
	}
	if ok, _ := r.Allow(kube.Key{Name: "0"}, "x", now); !ok {
		t.Error("what came long ago was remembered")
	}
}
