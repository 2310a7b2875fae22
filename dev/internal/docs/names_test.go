package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPagesUseExistingNames looks up every qualified name in the pages of docs/ and its folders, and in the README.
// Decisions and the changelog may use names of removed code.
func TestPagesUseExistingNames(t *testing.T) {
	t.Parallel()
	folders, err := PackageFolders(repository)
	if err != nil {
		t.Fatal(err)
	}
	names, err := ReadNames(repository, folders...)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, folder := range []string{"migrating", "reference", "dashboards"} {
		more, err := filepath.Glob(filepath.Join(repository, "docs", folder, "*.md"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no pages in %s: %v", folder, err)
		}
		pages = append(pages, more...)
	}
	for _, name := range append(pages, filepath.Join(repository, "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page, err := Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, problem := range CheckNames(names, page) {
			t.Errorf("%s: %s", filepath.Base(name), problem)
		}
	}
}

func TestCheckNames(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	const source = `package shop
type Shop[T any] struct { Name string; inner int }
type Keeper interface { Keep() }
func New() {}
func (s *Shop[T]) Open() {}
const Closed = 1
`
	if err := os.WriteFile(filepath.Join(folder, "shop", "shop.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := ReadNames(folder, "shop")
	if err != nil {
		t.Fatal(err)
	}
	page, err := Parse("`shop.New`, `shop.Shop.Open`, `shop.Shop.Name(x)`, `shop.Keeper.Keep`, `shop.Closed`, `market.Any`, shop.Unquoted\n" +
		"`shop.Old` and `shop.Shop.Close`\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"line 2: package shop has no Old", "line 2: package shop has no Shop.Close"}
	if diff := cmp.Diff(want, CheckNames(names, page)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if _, err := ReadNames(folder, "none"); err == nil {
		t.Error("a folder without Go files is no error")
	}
}
