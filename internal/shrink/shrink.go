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

// Due reports whether a container with n elements, which had at most maxLen elements since the last copy, should be
// copied.
func Due(maxLen, n int) bool { return maxLen > large && n <= maxLen/ratio }

// Delete deletes key from m, and returns m, or a smaller copy of it. maxLen is the largest number of elements since the
// last copy; Delete updates it.
func Delete[K comparable, V any](m map[K]V, key K, maxLen *int) map[K]V {
	*maxLen = max(*maxLen, len(m))
	delete(m, key)
	return Map(m, maxLen)
}

// Map returns m, or a smaller copy of it. The caller must have updated maxLen before it deleted elements.
func Map[K comparable, V any](m map[K]V, maxLen *int) map[K]V {
	if !Due(*maxLen, len(m)) {
		return m
	}
	*maxLen = len(m)
	smaller := make(map[K]V, len(m))
	maps.Copy(smaller, m)
	return smaller
}
