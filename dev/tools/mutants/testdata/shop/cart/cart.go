// Package cart uses package price.
package cart

import "example.com/shop/price"

// Line returns a line of text.
func Line(name string) string { return price.Label(name) + "!" }
