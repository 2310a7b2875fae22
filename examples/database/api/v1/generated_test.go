package v1

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The generated files are those that "make generate" writes.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	fresh := t.TempDir()
	text, err := exec.CommandContext(t.Context(), "go", "tool", "controller-gen", "object", "crd", "paths=.", "output:dir="+fresh).CombinedOutput()
	if err != nil {
		t.Fatalf("controller-gen: %v\n%s", err, text)
	}
	for _, name := range []string{"database.example.com_databases.yaml", "zz_generated.deepcopy.go"} {
		want, err := os.ReadFile(filepath.Join(fresh, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("%s is out of date: run \"make generate\" (-file +generated):\n%s", name, diff)
		}
	}
}
