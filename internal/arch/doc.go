// Package arch holds the tests that keep the shape of the code: which package may import which, no names that mean
// nothing, no global state, no sleeping tests. It has no code of its own.
package arch
