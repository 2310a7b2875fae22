package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What became of a mutant.
const (
	killed     = "killed"    // a test failed, or does not compile
	timedOut   = "timed out" // a test hung; counts as killed
	survived   = "survived"  // all tests that reach it passed
	notCovered = "no test"   // survived: no test reaches it
)

// result is the outcome of one mutant.
type result struct {
	Outcome string
	By      string  // the test that failed, with its package
	Seconds float64 // for building and running
	Tests   int     // how many tests ran
	output  []byte
}

func (r *result) survived() bool { return r.Outcome == survived || r.Outcome == notCovered }

// bench builds and runs tests of packages with and without mutants. Its methods may be called at the same time.
type bench struct {
	dir        string              // where go runs
	work       string              // temporary folder
	coverage   string              // -coverpkg
	slack      time.Duration       // added to each timeout
	dirs       map[string]string   // folders of packages
	dependents map[string][]string // packages with tests that link the package
	last       map[string][]string // packages of tests with a cluster for a package, tried last and as a whole
	printf     func(format string, args ...any)

	mu        sync.Mutex
	baselines map[string]*baseline
}

// skipped are packages whose tests take minutes.
const skipped = `/(localcluster|contractmatrix)(/|$)`

// findDependents finds, for each of the packages, the packages with tests that link it, except its own, those with the
// fewest dependencies first: they are the fastest to build.
func (b *bench) findDependents(ctx context.Context, targets []string) error {
	listed, err := goList(ctx, b.dir, "-json=ImportPath,Dir,Deps", "-test", "./...")
	if err != nil {
		return err
	}
	skip := regexp.MustCompile(skipped)
	slices.SortStableFunc(listed, func(a, b goPackage) int { return len(a.Deps) - len(b.Deps) })
	b.dependents = map[string][]string{}
	for _, p := range listed {
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		b.dirs[path] = p.Dir
		if !isTest || skip.MatchString(path) {
			continue
		}
		for _, target := range targets {
			linked := slices.Contains(p.Deps, target) || slices.Contains(p.Deps, target+" ["+p.ImportPath+"]")
			if linked && path != target && !slices.Contains(b.last[target], path) {
				b.dependents[target] = append(b.dependents[target], path)
			}
		}
	}
	return nil
}

// isLast reports whether the package's tests share a cluster.
func (b *bench) isLast(importPath string) bool {
	for _, tests := range b.last {
		if slices.Contains(tests, importPath) {
			return true
		}
	}
	return false
}

func runPattern(tests ...testRun) string {
	names := make([]string, 0, len(tests))
	for _, t := range tests {
		names = append(names, t.name)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// build compiles a package's tests. DWARF and symbols are left out, because linking is the larger part of the time.
func (b *bench) build(ctx context.Context, importPath, binary string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := command(ctx, "go", append(args, importPath)...)
	cmd.Dir = b.dirs[importPath] // in its module
	return cmd.CombinedOutput()
}

// MiB of address space of a test. Tests that start a cluster need more: etcd maps a file of 10 GiB.
const (
	memory        = 4096
	clusterMemory = 32768
)

// test runs a test binary in its package's folder. The address space is limited, because a mutant may allocate without
// end.
func (b *bench) test(
	ctx context.Context, importPath, binary string, timeout time.Duration, flags ...string,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	limit := memory
	if b.isLast(importPath) {
		limit = clusterMemory
	}
	args := append([]string{
		"-c", `ulimit -v "$0" && exec "$@"`, strconv.Itoa(limit << 10),
		binary, "-test.failfast", "-test.short=false", "-test.timeout=" + timeout.String(),
	}, flags...)
	cmd := command(ctx, "sh", args...)
	cmd.Dir = b.dirs[importPath]
	return cmd.CombinedOutput()
}

// command returns a command. Its whole process group is killed when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// mostOthers is the number of other packages whose tests run on a mutant that its own package's tests let pass.
const mostOthers = 3

// try builds and runs the tests that reach the mutant: its own package's, then those of other packages.
func (b *bench) try(ctx context.Context, m *mutant) (*result, error) {
	r := &result{Outcome: notCovered}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()

	folder, err := os.MkdirTemp(b.work, "mutant")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the temporary folder around it is removed at the end
	overlay, err := writeOverlay(folder, m)
	if err != nil {
		return nil, err
	}
	others := 0
	for _, importPath := range slices.Concat([]string{m.Package}, b.dependents[m.Package], b.last[m.Package]) {
		isOther := importPath != m.Package && !b.isLast(importPath)
		if isOther && others == mostOthers {
			continue
		}
		base := b.baseline(ctx, importPath)
		if base.err != nil {
			return nil, base.err
		}
		groups := base.covering(m)
		if len(groups) == 0 {
			continue
		}
		if isOther {
			others++
		}
		if err := b.tryWith(ctx, folder, overlay, m, importPath, groups, r); err != nil || !r.survived() {
			return r, err
		}
	}
	return r, nil
}

func writeOverlay(folder string, m *mutant) (string, error) {
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(mutated, m.mutated(), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {m.file.path: mutated}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// tryWith runs groups of tests of one package with the mutant.
func (b *bench) tryWith(
	ctx context.Context, folder, overlay string, m *mutant, importPath string, groups [][]testRun, r *result,
) error {
	binary := filepath.Join(folder, "x.test")
	output, err := b.build(ctx, importPath, binary, "-overlay="+overlay)
	switch {
	case err != nil && regexp.MustCompile(`(?m)\.go:\d+:\d+: `).Match(output):
		r.Outcome, r.By, r.output = killed, importPath+" does not compile", output
		return nil
	case err != nil:
		return fmt.Errorf("build mutant %s: %w\n%s", m.ID, err, output)
	}
	for _, tests := range groups {
		timeout := b.slack
		for _, t := range tests {
			timeout += 3 * t.duration
		}
		r.Tests += len(tests)
		if err := b.runTests(ctx, importPath, binary, timeout.Round(time.Second), runPattern(tests...), r); err != nil {
			return fmt.Errorf("run the tests of %s with mutant %s: %w", importPath, m.ID, err)
		}
		if !r.survived() {
			return nil
		}
	}
	return nil
}

// runTests sets the outcome of the tests that match the pattern. A test with a cluster that failed runs once more, so
// that a failure of the cluster on a busy machine does not kill a mutant.
func (b *bench) runTests(
	ctx context.Context, importPath, binary string, timeout time.Duration, pattern string, r *result,
) error {
	runs := 1
	if b.isLast(importPath) {
		runs = 2
	}
	for range runs {
		output, err := b.test(ctx, importPath, binary, timeout, "-test.run="+pattern)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			r.Outcome, r.By, r.output = survived, "", nil
			return nil
		case bytes.Contains(output, []byte("panic: test timed out")) || errors.As(err, &exit) && exit.ExitCode() == -1:
			r.Outcome = timedOut
		case errors.As(err, &exit):
			r.Outcome = killed
		default:
			return err
		}
		r.By, r.output = failedTest(importPath, output), output
		if name, ok := strings.CutPrefix(r.By, importPath+"."); ok {
			name, _, _ = strings.Cut(name, "/")
			pattern = "^" + name + "$"
		}
	}
	return nil
}

// failedTest returns the first test that failed, or the first line of a panic.
func failedTest(importPath string, output []byte) string {
	panicked := ""
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			return importPath + "." + name
		}
		if panicked == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
			panicked = importPath + " " + line
		}
	}
	return panicked
}

// tail returns the end of an output.
func tail(output []byte) []byte {
	const most = 4000
	return output[max(0, len(output)-most):]
}
