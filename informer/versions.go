package informer

import (
	"strconv"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// versionCheck compares the versions of a list's items with the version of the list. An API server that counts all
// writes in one sequence, as those with etcd do, never gives two items the same version, nor an item a newer version
// than its list. An API server that counts the writes of each object does.
type versionCheck struct {
	newest, last string
	repeated     bool
}

// item records the version of an item.
func (v *versionCheck) item(version string) {
	v.repeated = v.repeated || version == v.last && isComparable(version)
	v.last = version
	if v.newest == "" || apiobject.OlderVersion(v.newest, version) {
		v.newest = version
	}
}

// perObject reports whether the items and the version of their list show that the API server counts the writes of each
// object.
func (v *versionCheck) perObject(list string) bool {
	return v.repeated || apiobject.OlderVersion(list, v.newest)
}

// isComparable reports whether a resource version can be compared.
func isComparable(version string) bool {
	_, ok := parseVersion(version)
	return ok
}

// parseVersion parses a resource version. ok is false if it cannot be compared.
func parseVersion(version string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0
}
