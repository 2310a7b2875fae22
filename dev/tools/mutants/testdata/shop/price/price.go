// Package price has tests that notice some changes.
package price

import "strings"

// Total adds prices. Its tests notice a missing addition.
func Total(prices ...int) int {
	total := 0
	for _, p := range prices {
		total += p
	}
	return total
}

// Halve hangs without its subtraction.
func Halve(n int) (half int) {
	for n > 1 {
		n -= 2
		half++
	}
	return half
}

// Discount has no test at the limit.
func Discount(total int) bool {
	return total > 99
}

// Label is tested by package cart only.
func Label(name string) string {
	return strings.ToUpper(name)
}

// Unused has no test.
func Unused() string {
	return strings.ToLower("X")
}
