package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// repository is the folder of the whole repository, seen from this package.
const repository = "../../.."

// TestPages checks every page of this repository.
func TestPages(t *testing.T) {
	t.Parallel()
	names, err := Files(repository)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("the repository has no pages")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			page, err := Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if hasFiles(page) && !followed(t, name) {
				t.Errorf("%s: it has files for its reader to save, but no test in dev/integration/pages follows it: see package follow", name)
			}
			for _, problem := range append(CheckCode(repository, page), CheckLinks(repository, name, page)...) {
				t.Errorf("%s: %s", name, problem)
			}
		})
	}
}

func hasFiles(page Page) bool {
	for _, b := range page.Blocks {
		if len(b.Marked("file")) > 0 {
			return true
		}
	}
	return false
}

// followed reports whether a test in dev/integration/pages gives the page to package follow.
func followed(t *testing.T, name string) bool {
	t.Helper()
	found := false
	err := fs.WalkDir(os.DirFS(repository), "dev/integration/pages", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(os.DirFS(repository), file)
		found = found || strings.Contains(string(text), "follow.Page(") && strings.Contains(string(text), `"`+path.Base(name)+`"`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
