// Package shrink frees the memory of maps and slices that were much larger. Go's maps and slices never shrink by
// themselves.
package shrink

import "maps"

// A container shrinks if it had more than large elements, and at most one in ratio of them is left. The copy is then at
// most 1/ratio of the deletions that preceded it, so the cost per deletion is constant.
const (
	large = 4096
	ratio = 16
)

// Due reports whether a container with n elements, which had at most most elements since the last copy, should be copied.
func Due(most, n int) bool { return most > large && n <= most/ratio }

// Delete deletes key from m, and returns m, or a smaller copy of it. most is the largest number of elements since the
// last copy; Delete updates it.
func Delete[K comparable, V any](m map[K]V, key K, most *int) map[K]V {
	*most = max(*most, len(m))
	delete(m, key)
	return Map(m, most)
}

// Map returns m, or a smaller copy of it. The caller must have updated most before it deleted elements.
func Map[K comparable, V any](m map[K]V, most *int) map[K]V {
	if !Due(*most, len(m)) {
		return m
	}
	*most = len(m)
	smaller := make(map[K]V, len(m))
	maps.Copy(smaller, m)
	return smaller
}
