// Command update copies the code samples in this repository's pages from the files that their markers name. Run it from
// the repository's root, with make docs.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/evenkeel-go/evenkeel/dev/internal/docs"
)

func main() {
	if err := update("."); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// update rewrites the pages below root that are out of date. A page with a fault is left as it is.
func update(root string) error {
	names, err := docs.Files(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		changed, err := updatePage(root, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		if changed {
			fmt.Println("updated", name)
		}
	}
	return errors.Join(errs...)
}

func updatePage(root, name string) (changed bool, err error) {
	file := root + "/" + name
	old, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("reading the page: %w", err)
	}
	text, err := docs.Rewrite(root, string(old))
	if err != nil || text == string(old) {
		return false, err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return false, fmt.Errorf("writing the page: %w", err)
	}
	return true, nil
}
