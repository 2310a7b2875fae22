// Package arch has tests of the code's structure: package dependencies, package names, global state, and tests that
// sleep. It has no other code.
package arch
