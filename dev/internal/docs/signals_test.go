package docs

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// TestProgramsEndOnSIGTERM: the kubelet ends a container with SIGTERM. A program that handles only
// os.Interrupt dies of it at once: without drain, and without releasing its lease. A second signal must end it at once.
// Pages are checked too, because readers copy their code.
func TestProgramsEndOnSIGTERM(t *testing.T) {
	t.Parallel()
	programs := 0
	err := fs.WalkDir(os.DirFS(repository), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && (base == "testdata" || name != "." && strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" && path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(os.DirFS(repository), name)
		if err != nil {
			return err
		}
		if name == "dev/internal/docs/signals_test.go" {
			return nil
		}
		lines := strings.Split(string(text), "\n")
		for number, line := range lines {
			if !strings.Contains(line, "signal.Notify") || !strings.Contains(line, "os.Interrupt") {
				continue
			}
			programs++
			rest := strings.Join(lines[number:min(number+4, len(lines))], "\n")
			if strings.HasPrefix(name, "dev/") || strings.HasPrefix(name, "localcluster/") {
				// they end soon, or clean up at any signal
			} else if strings.Contains(line, "NotifyContext") && !strings.Contains(rest, "context.AfterFunc(ctx, stop)") {
				t.Errorf("%s:%d: a second signal does not end the process if a handler ignores its context: add context.AfterFunc(ctx, stop)", name, number+1)
			}
			if !strings.Contains(line, "syscall.SIGTERM") {
				t.Errorf("%s:%d: handles os.Interrupt without syscall.SIGTERM: %s", name, number+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if programs < 5 {
		t.Errorf("%d programs that handle signals were found: the test looks for the wrong text", programs)
	}
}
