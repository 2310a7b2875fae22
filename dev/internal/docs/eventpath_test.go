package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEventPath counts the lines of the functions on the path of one event, which docs/architecture.md lists in reading
// order. The page must have the same numbers, and each function must exist.
func TestEventPath(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	paths := 0
	for _, b := range page.Blocks {
		if len(b.Marked("path")) == 0 {
			continue
		}
		paths++
		want, sum, err := PathTable(repository, b.Text)
		if err != nil {
			t.Fatalf("docs/architecture.md: %v", err)
		}
		t.Logf("event path: %d lines in %d functions and %d files", sum.Lines, sum.Functions, sum.Files)
		if sum.Lines > 1000 {
			t.Errorf("the event path has %d lines, more than 1,000", sum.Lines)
		}
		if b.Text != want {
			t.Errorf("docs/architecture.md is not up to date, run go run ./dev/internal/docs/update: %s", firstDifference(b.Text, want))
		}
	}
	if paths != 1 {
		t.Errorf("docs/architecture.md has %d blocks with a path marker, want 1", paths)
	}
}

// Who changes the loop of a controller reads its files in package controller, without the observers and gates behind its
// two seams, and what these call: the queue and the resyncs.
func TestLoopIsShortToRead(t *testing.T) {
	t.Parallel()
	behindSeams := strings.Fields(`calls cause_difference debug explain health history hotloops interrupted keys noobject
		problems recorder text timers unwritten watchdog writes`)
	files, err := filepath.Glob(filepath.Join(repository, "controller", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	loop := Program{Title: "the loop", Paths: []string{"internal/workqueue", "controller/internal/resync"}}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		if n := slices.Index(behindSeams, name); n >= 0 {
			behindSeams = slices.Delete(behindSeams, n, n+1)
		} else if !strings.HasSuffix(name, "_test") {
			loop.Paths = append(loop.Paths, "controller/"+name+".go")
		}
	}
	if len(behindSeams) > 0 {
		t.Errorf("package controller has no files %q", behindSeams)
	}
	counted, err := loop.Count(repository)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range counted {
		lines += file.Lines
	}
	t.Logf("%d lines of code", lines)
	if lines > 4500 {
		t.Errorf("the loop has %d lines of code, more than 4,500", lines)
	}
}

func TestPathTable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/one.go":   "package a\n\n// F is one.\nfunc F() {\n\t// two lines more\n}\n\nfunc (q *queue[T]) Add() {}\n",
		"a/two.go":   "package a\n\nfunc (s *stream) take() {\n}\n",
		"b/three.go": "package b\n\nfunc Moved() {\n}\n",
		"c/go.mod":   "module c\n",
		"c/c.go":     "package c\n\nfunc Other() {}\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct{ block, want, err string }{
		"counted":          {"Title\n 9  a/one.go: F\n", "Title\n     3  a/one.go: F\n     3  lines in 1 functions and 1 files\n", ""},
		"generic receiver": {" 9  a/one.go: queue.Add\n", "     1  a/one.go: queue.Add\n     1  lines in 1 functions and 1 files\n", ""},
		"other file":       {" 9  a/one.go: stream.take\n", "     2  a/two.go: stream.take\n     2  lines in 1 functions and 1 files\n", ""},
		"other package":    {" 9  a/one.go: Moved\n", "     2  b/three.go: Moved\n     2  lines in 1 functions and 1 files\n", ""},
		"other receiver":   {" 9  a/one.go: part.take\n", "     2  a/two.go: stream.take\n     2  lines in 1 functions and 1 files\n", ""},
		"old sum":          {" 9  a/one.go: F\n 9  lines in 9 functions and 9 files\n", "     3  a/one.go: F\n     3  lines in 1 functions and 1 files\n", ""},
		"missing":          {" 9  a/one.go: G\n", "", "function G is not in a/one.go"},
		"other module":     {" 9  a/one.go: Other\n", "", "function Other is not in a/one.go"},
		"empty":            {"Title\n", "", "no functions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := PathTable(root, tc.block)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("PathTable returns %q, %v, want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}
