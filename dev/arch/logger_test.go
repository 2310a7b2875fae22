package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDefaultLoggerIsThatOfConnection checks that no part of the library chooses slog's default logger by itself: its
// logger is that of the connection (kube.Cluster.Logger), and in a Runnable that of the manager.
func TestDefaultLoggerIsThatOfConnection(t *testing.T) {
	t.Parallel()
	permitted := map[string]int{
		"kube/cluster.go":              2, // Connect, until SetLogger; Logger
		"internal/observers/logger.go": 1, // of a Runnable without a manager
		"manager/options.go":           1, // compares
	}
	found := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".bin", "dev", "examples", "simulation", "localcluster"}, name):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.SelectorExpr); ok && call.Sel.Name == "Default" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "slog" {
					found[filepath.ToSlash(name)]++
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, count := range found {
		if count != permitted[name] {
			t.Errorf("%s calls slog.Default %d times, permitted are %d: use kube.Cluster.Logger", name, count, permitted[name])
		}
	}
	if len(found) != len(permitted) {
		t.Errorf("slog.Default is called in %d files, want %d: the test does not find them, or its list is old", len(found), len(permitted))
	}
}

// TestExamplesLogToLoggerOfConnection checks that the parts of an example log to its connection's logger, which has the
// levels and hides the values that flags select. An example that creates a logger gives it to the connection.
func TestExamplesLogToLoggerOfConnection(t *testing.T) {
	t.Parallel()
	permitted := map[string]string{
		"examples/config/main.go":  "slog.New Logger:", // sets every field
		"examples/metrics/main.go": "slog.New",
		"examples/demo/output.go":  "slog.New", // demo.go sets it
	}
	creates := regexp.MustCompile(`\b(?:slog|log)\.(?:New|Default|SetDefault)\b|\bLogger:`)
	found := 0
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if got := strings.Join(creates.FindAllString(string(text), -1), " "); got != permitted[name] {
			t.Errorf("%s has %q, permitted is %q: use the logger of the kube.Cluster", name, got, permitted[name])
		} else if got != "" {
			found++
		}
		if strings.HasSuffix(name, "/main.go") && permitted[name] != "" && !strings.Contains(string(text), "cluster.SetLogger(logger)") {
			t.Errorf("%s does not give its logger to its connection", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != len(permitted) {
		t.Errorf("%d examples create loggers, want %d", found, len(permitted))
	}
}

// TestLogsOfTestsAreForConcurrentUse checks that no test gives a logger a plain buffer: what it tests may log while the
// test reads.
func TestLogsOfTestsAreForConcurrentUse(t *testing.T) {
	t.Parallel()
	handler := regexp.MustCompile(`slog\.New(?:Text|JSON)Handler\(&?(\w+),`)
	plain := `(?m)^\s*(?:var %[1]s|.*\b%[1]s :=|var \w+, %[1]s|var %[1]s, \w+) &?(?:bytes\.Buffer|strings\.Builder)\b`
	loggers := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range handler.FindAllSubmatch(text, -1) {
			loggers++
			if regexp.MustCompile(fmt.Sprintf(plain, match[1])).Match(text) {
				t.Errorf("%s: the buffer %s of a logger is not for concurrent use: make it a testlog.Buffer", path, match[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if loggers == 0 {
		t.Error("no test has a logger: the test does not find them")
	}
}
