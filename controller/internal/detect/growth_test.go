package detect

import (
	"slices"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	t.Parallel()
	const wait = time.Minute
	for name, test := range map[string]struct {
		lengths  []int
		oldest   time.Duration
		interval time.Duration
		first    []int // the samples that start an episode
		grows    []int // the samples that report that an episode continues
	}{
		"it grows for a minute": {lengths: []int{90, 100, 110, 120, 130, 140, 150}, first: []int{6}, grows: []int{6}},
		"once per episode, until it is below half of the peak": {
			lengths: []int{0, 200, 300, 400, 500, 600, 700, 800, 700, 450, 400, 401, 399, 900, 449}, first: []int{6},
			grows: []int{6, 7, 8, 9, 10, 11},
		},
		"half of the highest": {
			lengths: []int{0, 200, 300, 400, 500, 600, 700, 1400, 700, 699, 1}, first: []int{6}, grows: []int{6, 7, 8},
		},
		"again": {
			lengths: []int{0, 100, 101, 102, 103, 104, 105, 10, 100, 101, 102, 103, 104, 105}, first: []int{6, 13},
			grows: []int{6, 13},
		},
		"it stands still once":  {lengths: []int{100, 110, 120, 130, 130, 140, 150, 160}},
		"it goes down once":     {lengths: []int{100, 110, 120, 130, 120, 140, 150, 160, 170}},
		"it is short":           {lengths: []int{0, 10, 20, 30, 40, 50, 100}},
		"keys do not wait":      {lengths: []int{0, 110, 120, 130, 140, 150, 160, 170}, oldest: 9 * time.Second},
		"samples come too soon": {lengths: []int{0, 110, 120, 130, 140, 150, 160, 170, 180}, interval: time.Second},
		"samples are a bit early": {
			lengths: []int{0, 110, 120, 130, 140, 150, 160}, interval: 9 * time.Second, first: []int{6},
			grows: []int{6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g Growth
			start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
			now := start
			if test.interval == 0 {
				test.interval = GrowthInterval
			}
			if test.oldest == 0 {
				test.oldest = wait
			}
			for i, length := range test.lengths {
				grows, first := g.Sample(length, test.oldest, now)
				if first != slices.Contains(test.first, i) || grows != slices.Contains(test.grows, i) {
					t.Errorf("sample %d (%d): grows %t, first %t", i, length, grows, first)
				}
				if i == 6 && first && !g.Since().Equal(start) {
					t.Errorf("since %s, want %s", g.Since(), start)
				}
				if g.Since().IsZero() == grows {
					t.Errorf("sample %d: grows %t, since %s", i, grows, g.Since())
				}
				now = now.Add(test.interval)
			}
		})
	}
}
