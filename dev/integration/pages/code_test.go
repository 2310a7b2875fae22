package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/internal/docs"
)

// The files of getting started compile, and the page's own test passes, in a module with the requirements of the
// examples. (TestGettingStarted also runs the commands, with a real API server.)
func TestCodeOfGettingStarted(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, err := docs.Parse(read("docs/getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	module := strings.NewReplacer("=> ../simulation", "=> "+root+"/simulation", "=> ../\n", "=> "+root+"\n").Replace(read("examples/go.mod"))
	files := map[string]string{"greeter/go.mod": module, "greeter/go.sum": read("examples/go.sum")}
	for _, block := range page.Blocks {
		for _, name := range block.Marked("file") {
			files[name] = block.Text
		}
	}
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-v", ".")
	command.Dir = filepath.Join(folder, "greeter")
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 2 {
		t.Errorf("go test in the module of the page: %v\n%s", err, out)
	}
}
