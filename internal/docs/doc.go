// Package docs keeps the pages of this repository true: each Go sample equals a file that is compiled, each relative link
// leads somewhere, and each code block of a doc comment is a part of a test beside it. Its tests check that, make docs (package update) copies the samples anew, and package follow runs
// the pages that a reader is meant to follow.
//
// What a page says about a fenced block stands in comments directly above it, one a line, so that readers do not see it:
//
//	<!-- code: examples/demo/main.go -->       the block is that file
//	<!-- code: examples/demo/main.go#wire -->  the block is what stands between // region wire and // endregion in it
//	<!-- loc: A = PATH PATH; B = PATH -->      the block is a table of the lines of code that the programs A and B have
//	<!-- file: main.go -->                     followed pages: save the block as that file
//	<!-- run: ... -->                          followed pages: how the block is run, see package follow
//
// Each block whose language is go needs a code marker, or a file marker on a page that a test in examples/ follows.
package docs
