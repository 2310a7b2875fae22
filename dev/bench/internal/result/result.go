// Package result holds what both comparisons do with measured values: medians, and files of results.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
)

// Median returns the middle of values, or the mean of the two in the middle; ok is false when values is empty.
func Median(values []float64) (median float64, ok bool) {
	if len(values) == 0 {
		return math.NaN(), false
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle], true
	}
	return (sorted[middle-1] + sorted[middle]) / 2, true
}

// Read reads results of the type R from a JSON file.
func Read[R any](path string) (*R, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r R
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read results %s: %w", path, err)
	}
	return &r, nil
}

// Write writes results to a JSON file.
func Write(path string, results any) error {
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
