package docs

import (
	"os"
	"path/filepath"
	"testing"
)

// repository is the folder of the whole repository, seen from this package.
const repository = "../.."

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
			for _, problem := range append(CheckCode(repository, page), CheckLinks(repository, name, page)...) {
				t.Errorf("%s: %s", name, problem)
			}
		})
	}
}
