package config_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The generated files are those that "make generate" writes.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	const directive, output = "//go:generate go tool controller-gen ", "output:dir=."
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			arguments, ok := strings.CutPrefix(strings.TrimSpace(line), directive)
			if !ok {
				continue
			}
			if !strings.HasSuffix(arguments, output) {
				t.Errorf("%s: the directive %q does not end in %s", path, line, output)
			}
			found++
			checkGenerated(t, filepath.Dir(path), strings.Fields(strings.TrimSuffix(arguments, output)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != 3 {
		t.Errorf("%d directives, want 3", found)
	}
}

// checkGenerated generates the files of a folder into another one, and compares them.
func checkGenerated(t *testing.T, folder string, arguments []string) {
	t.Helper()
	fresh := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", append(append([]string{"tool", "controller-gen"}, arguments...), "output:dir="+fresh)...)
	command.Dir = folder
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, text)
	}
	entries, err := os.ReadDir(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Errorf("%v wrote no file", command.Args)
	}
	for _, entry := range entries {
		want, err := os.ReadFile(filepath.Join(fresh, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("%s is out of date: run \"make generate\" (-file +generated):\n%s", filepath.Join(folder, entry.Name()), diff)
		}
	}
}
