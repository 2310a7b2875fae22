package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An operator with everything that a user usually needs stays small.
func TestDatabaseExampleHasAtMost200Lines(t *testing.T) {
	t.Parallel()
	files, err := Program{Title: "database", Paths: []string{"examples/database"}}.Count(repository)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, file := range files {
		sum += file.Lines
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(file.Path)))
		if err != nil {
			t.Fatal(err)
		}
		if _, run, isMain := strings.Cut(string(text), "\nfunc main() "); isMain {
			if lines, err := CountLines(file.Path, []byte("package main\nfunc main() "+run)); err != nil || lines-1 > 25 {
				t.Errorf("main and run have %d lines, want at most 25 (%v)", lines-1, err)
			}
		}
	}
	if sum > 200 {
		t.Errorf("%d lines of code, want at most 200: %v", sum, files)
	}
}

// A reader reaches an operator in at most 1,500 words, and all pages have at most 35,000.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	words := func(path string) int {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.Fields(string(text)))
	}
	if n := words(filepath.Join(repository, "docs", "getting-started.md")); n > 1500 {
		t.Errorf("getting-started.md has %d words, want at most 1,500", n)
	}
	all := 0
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != repository && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			all += words(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if all > 35000 {
		t.Errorf("the pages have %d words, want at most 35,000", all)
	}
}
