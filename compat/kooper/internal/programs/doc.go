// Package programs has programs that were written for Kooper v2. Only their import paths name this module: dev/kooper
// runs them, with the paths of Kooper, on Kooper 2.9.0.
package programs
