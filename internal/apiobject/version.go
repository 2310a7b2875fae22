package apiobject

import "k8s.io/apimachinery/pkg/util/resourceversion"

// OlderVersion reports whether resource version a is before b (KEP-5504). It is false if they cannot be compared, such
// as those of some test doubles.
func OlderVersion(a, b string) bool { return a != b && VersionNotAfter(a, b) }

// VersionNotAfter reports whether resource version a is equal to b or before it. It is false if they cannot be
// compared.
func VersionNotAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}
