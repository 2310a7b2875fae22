package controller

import "maps"

// A map that had more than largeMap keys is copied when at most one in shrinkAt of them is left: maps do not
// release memory by themselves.
const (
	largeMap = 4096
	shrinkAt = 16
)

// deleted deletes key from m, and returns m, or a smaller copy of it. most is the largest number of keys that m
// has had since it was copied.
func deleted[K comparable, V any](m map[K]V, key K, most *int) map[K]V {
	*most = max(*most, len(m))
	delete(m, key)
	if *most <= largeMap || len(m) > *most/shrinkAt {
		return m
	}
	*most = len(m)
	smaller := make(map[K]V, len(m))
	maps.Copy(smaller, m)
	return smaller
}
