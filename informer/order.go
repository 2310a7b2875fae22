package informer

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// origin says what has brought an object.
type origin int

const (
	// fromList: it is an item of a list, in no order.
	fromList origin = iota
	// fromWatch: it comes in the order of resource versions; all before it have been seen.
	fromWatch
	// fromStart: it comes by a watch that begins with what there is, in no order.
	fromStart
	// unbroken: it comes as fromWatch, by a watch that began at a version that everything had
	// been seen up to, and is no creation. So whatever happened to the object since the state
	// that is kept has come.
	unbroken
)

// inOrder reports whether all before it have been seen.
func (o origin) inOrder() bool { return o == fromWatch || o == unbroken }

// older reports whether resource version a is before b. Versions that cannot be
// compared, as those of some test doubles, are never older.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// notAfter reports whether resource version a is b or before it. Versions that cannot be
// compared never are.
func notAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}

// parseVersion reads a resource version that can be compared.
func parseVersion(version string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0
}
