package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page of state in clusters has each label and annotation of the library, and no other.
func TestStatePageHasAllNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "reference", "state.md"))
	if err != nil {
		t.Fatal(err)
	}
	name, constant := regexp.MustCompile(`evenkeel\.dev/[a-z-]+`), regexp.MustCompile(`= "(evenkeel\.dev/[a-z-]+)"`)
	onPage := map[string]bool{}
	for _, found := range name.FindAllString(string(text), -1) {
		onPage[found] = false // whether the code has it
	}
	err = filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != repository && strings.HasPrefix(entry.Name(), ".") || relative == "dev" || relative == "examples" {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range constant.FindAllStringSubmatch(string(code), -1) {
			if _, ok := onPage[found[1]]; !ok {
				t.Errorf("the page lacks %s of %s", found[1], relative)
			}
		}
		for _, found := range name.FindAllString(string(code), -1) {
			if _, ok := onPage[found]; ok {
				onPage[found] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for found, inCode := range onPage {
		if !inCode {
			t.Errorf("the code lacks %s", found)
		}
	}
	if len(onPage) == 0 {
		t.Error("the page has no names")
	}
}
