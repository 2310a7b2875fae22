package result_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		values []float64
		want   float64
		found  bool
	}{
		{"of none", nil, math.NaN(), false},
		{"of one", []float64{3}, 3, true},
		{"of an odd number, unsorted", []float64{9, 1, 5}, 5, true},
		{"of an even number", []float64{4, 1, 2, 3}, 2.5, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := append([]float64(nil), test.values...)
			got, found := result.Median(test.values)
			if found != test.found || found && got != test.want {
				t.Errorf("median(%v) = %v, %t, want %v, %t", test.values, got, found, test.want, test.found)
			}
			if diff := cmp.Diff(before, test.values); diff != "" {
				t.Errorf("median changed its argument (-before +after):\n%s", diff)
			}
		})
	}
}

func TestReadReturnsWhatWriteWrote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.json")
	want := map[string]float64{"a": 1.5}
	if err := result.Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := result.Read[map[string]float64](path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
