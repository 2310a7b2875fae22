package pages

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The comment in the Makefile of examples/webapp makes an operator from that folder, and the command of its Dockerfile
// builds the copy as in an image, which has only that folder.
func TestCopyOfWebApp(t *testing.T) {
	root := repository(t)
	webapp := filepath.Join(root, "examples", "webapp")
	folder := t.TempDir()
	run := func(dir string, commands [][]byte) {
		t.Helper()
		if len(commands) == 0 {
			t.Fatal("no commands were found")
		}
		script := string(bytes.Join(commands, []byte("\n")))
		command := exec.CommandContext(t.Context(), "sh", "-exc", script)
		command.Dir = dir
		for _, variable := range os.Environ() {
			// The outer make is not the copy's, and its tests without a cluster are enough.
			if !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "EVENKEEL_") {
				command.Env = append(command.Env, variable)
			}
		}
		command.Env = append(command.Env, "EVENKEEL="+root)
		if text, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	commands := func(name, pattern string) (found [][]byte) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(webapp, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			found = append(found, match[1])
		}
		return found
	}
	run(folder, commands("Makefile", `(?m)^#\t(.*)$`))
	// go test found all packages of the copy, so that nothing in there has the old path.
	image := filepath.Join(folder, "image")
	run(filepath.Join(folder, "operator"), [][]byte{[]byte("go mod vendor"), []byte("mv ../operator " + image)})
	run(image, commands("Dockerfile", `(?m)^RUN (.*)$`))
	if _, err := os.Stat(filepath.Join(image, "webapp")); err != nil {
		t.Error(err)
	}
}
