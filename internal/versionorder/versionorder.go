// Package versionorder compares resource versions (KEP-5504).
package versionorder

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Older reports whether resource version a is before b. It is false if they cannot be compared, such as those of some
// test doubles.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// NotAfter reports whether resource version a is equal to b or before it. It is false if they cannot be compared.
func NotAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}
