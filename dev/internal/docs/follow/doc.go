// Package follow runs the steps of a page of the docs, to test that the page works.
//
// Its blocks are taken in order, in one folder and one shell (sh -e), as a reader would type them: cd, variables and
// functions of one block hold for the next. Comments directly above a block say how (see package docs for their form):
//
//	<!-- file: main.go -->              the block, in any language, is saved as that file. The path starts from
//	                                    Options.Dir, wherever the shell is by then.
//	no comment                          a block of language sh is run. It must succeed.
//	<!-- run: expect "text" -->         it is run, and its output must contain the text.
//	<!-- run: until "text" -->          it is run repeatedly until it succeeds with the text in its output, at most
//	                                    for Options.Until. Each run has a subshell, so it changes nothing for later
//	                                    blocks.
//	<!-- run: background -->            it is started, must live until the page's end, and is then ended with SIGTERM.
//	<!-- run: background, until "a" --> the page goes on when its output contains the text.
//	<!-- run: background, expect "a" -> the text must be in its output by the page's end.
//	<!-- run: no, REASON -->            it is not run.
//
// Blocks of other languages without a file comment are ignored. KUBECONFIG is taken from the environment, so
// that a page never changes the cluster of the user who runs the test.
package follow
