package shrink_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/shrink"
)

// A map that had many elements is copied once few are left; the copy has the same elements.
func TestDeleteCopiesLargeMaps(t *testing.T) {
	t.Parallel()
	const n = 10_000
	m, most := map[int]int{}, 0
	for i := range n {
		m[i] = 2 * i
	}
	for i := range n - n/16 - 1 {
		if m = shrink.Delete(m, i, &most); most != n {
			t.Fatalf("copied with %d of %d elements left", len(m), n)
		}
	}
	before := maps.Clone(m)
	last := n - n/16 - 1
	if m = shrink.Delete(m, last, &most); most != n/16 {
		t.Errorf("with %d of %d elements left the maximum is %d, want %d", len(m), n, most, n/16)
	}
	delete(before, last)
	if !maps.Equal(before, m) {
		t.Errorf("the copy has %d other elements", len(slices.Collect(maps.Keys(m))))
	}
}

func TestSmallMapsAreNotCopied(t *testing.T) {
	t.Parallel()
	m, most := map[int]int{}, 0
	for i := range 4096 {
		m[i] = i
	}
	for i := range 4096 {
		m = shrink.Delete(m, i, &most)
	}
	if most != 4096 || len(m) != 0 {
		t.Errorf("the maximum is %d, and %d elements are left", most, len(m))
	}
}
