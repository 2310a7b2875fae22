package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Files returns the paths below root of all pages: the Markdown files that are not in hidden folders or in testdata.
func Files(root string) ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && (base == "testdata" || name != "." && strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		if !entry.IsDir() && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for pages: %w", err)
	}
	return names, nil
}
