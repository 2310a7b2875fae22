// Package docs checks the pages of this repository: each Go sample equals a file that is compiled, each relative link
// has a target, each code block of a doc comment is part of a test in the same package, and each function on a path
// exists. Its tests check that, make docs (package update) copies the samples and counts the lines again, and package
// follow runs the pages that a reader can follow.
//
// Comments directly above a fenced block, one a line, describe the block. Readers do not see them:
//
//	<!-- code: examples/demo/main.go -->       the block is that file
//	<!-- code: examples/demo/main.go#wire -->  the block is what stands between // region wire and // endregion in it
//	<!-- loc: A = PATH PATH; B = PATH -->      the block is a table of the lines of code in the programs A and B
//	<!-- uses: A = PATH PATH -->               the block is a table of what A uses of the library
//	<!-- path: event -->                       the block is a list of functions with their lengths, and the sum
//	<!-- file: main.go -->                     followed pages: save the block as that file
//	<!-- run: ... -->                          followed pages: how the block is run, see package follow
//
// Each block whose language is go needs a code marker, or a file marker on a page that a test in examples/ follows.
package docs
