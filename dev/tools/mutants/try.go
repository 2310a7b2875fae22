package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	killed     = "killed"     // a test failed
	timedOut   = "timed out"  // a test hung; counts as killed
	survived   = "survived"   // all tests that reach it passed
	notCovered = "no test"    // survived: no test reaches it
	notGo      = "no compile" // not counted
)

// result is the outcome of one mutant.
type result struct {
	ID      string
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
	dependents map[string][]string // packages with tests that link the package
	dirs       map[string]string   // folders of packages
	mostOthers int                 // of other packages' tests per mutant
	memory     int                 // MiB of address space for a test
	last       map[string][]string // packages of tests with a cluster for a package, tried last and as a whole
	parallel   int                 // tests at a time while a baseline is measured
	measuring  func(importPath string)

	mu        sync.Mutex
	baselines map[string]*baseline
	wholes    map[string]*whole
}

// baseline is what the tests of a package cover without a mutant, each of them on its own.
type baseline struct {
	once  sync.Once
	tests []testRun
	err   error
}

// testRun is one test, example or fuzz test (with its seeds).
type testRun struct {
	name     string
	profile  profile
	duration time.Duration
}

// covering returns the tests that reach the mutant in two groups: those that take less than a second, and the others.
// Most mutants are killed by the first group.
func (b *baseline) covering(m *mutant) [][]testRun {
	var quick, slow []testRun
	for _, t := range b.tests {
		switch {
		case !t.profile.covers(m):
		case t.duration < time.Second:
			quick = append(quick, t)
		default:
			slow = append(slow, t)
		}
	}
	return slices.DeleteFunc([][]testRun{quick, slow}, func(group []testRun) bool { return len(group) == 0 })
}

// baseline runs the tests of a package once without a mutant, with coverage.
func (b *bench) baseline(ctx context.Context, importPath string) *baseline {
	b.mu.Lock()
	base := b.baselines[importPath]
	if base == nil {
		base = &baseline{}
		b.baselines[importPath] = base
	}
	b.mu.Unlock()
	base.once.Do(func() { base.tests, base.err = b.measure(ctx, importPath) })
	return base
}

func (b *bench) measure(ctx context.Context, importPath string) ([]testRun, error) {
	b.measuring(importPath)
	folder, err := os.MkdirTemp(b.work, "baseline")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the temporary folder around it is removed at the end
	binary := filepath.Join(folder, "x.test")
	output, err := b.build(ctx, importPath, binary, "-cover", "-coverpkg="+b.coverage)
	if err != nil {
		return nil, fmt.Errorf("build the tests of %s without a mutant: %w\n%s", importPath, err, output)
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // go test -c writes no binary for a package without tests
	}
	output, err = b.test(ctx, importPath, binary, time.Minute, "-test.list=.")
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", importPath, err, output)
	}
	var tests []testRun
	for name := range strings.FieldsSeq(string(output)) {
		for _, prefix := range []string{"Test", "Example", "Fuzz"} {
			if strings.HasPrefix(name, prefix) {
				tests = append(tests, testRun{name: name})
			}
		}
	}
	errs := make([]error, len(tests))
	var workers sync.WaitGroup
	slots := make(chan struct{}, b.parallel)
	for i := range tests {
		slots <- struct{}{}
		workers.Go(func() { // workers.Wait below waits for it
			defer func() { <-slots }()
			out := filepath.Join(folder, fmt.Sprintf("cover%d.out", i))
			errs[i] = b.measureTest(ctx, importPath, binary, out, runPattern(tests[i:i+1]), &tests[i])
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return tests, errors.Join(errs...)
}

func (b *bench) measureTest(ctx context.Context, importPath, binary, out, pattern string, t *testRun) error {
	var output []byte
	var err error
	for range 2 { // a second time for a test that fails on a busy machine
		began := time.Now()
		output, err = b.test(ctx, importPath, binary, 20*time.Minute, "-test.run="+pattern, "-test.coverprofile="+out)
		t.duration = time.Since(began)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s.%s fails without a mutant, repair it first: %w\n%s", importPath, t.name, err,
			tail(output))
	}
	t.profile, err = readProfile(out)
	return err
}

func runPattern(tests []testRun) string {
	names := make([]string, 0, len(tests))
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t.name))
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

// clusterMemory multiplies the address space of tests that start a cluster: etcd maps a file of 10 GiB.
const clusterMemory = 8

// test runs a test binary in its package's folder. The address space is limited, because a mutant may allocate without
// end.
func (b *bench) test(
	ctx context.Context, importPath, binary string, timeout time.Duration, flags ...string,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	limit := b.memory
	if slices.Contains(slices.Concat(slices.Collect(maps.Values(b.last))...), importPath) {
		limit *= clusterMemory
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

// try builds and runs the tests that reach the mutant: its own package's, then those of other packages.
func (b *bench) try(ctx context.Context, m *mutant) (*result, error) {
	r := &result{ID: m.ID, Outcome: notCovered}
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
	tried := 0
	for i, importPath := range append([]string{m.Package}, b.dependents[m.Package]...) {
		if tried > b.mostOthers {
			break
		}
		base := b.baseline(ctx, importPath)
		if base.err != nil {
			return nil, base.err
		}
		groups := base.covering(m)
		if len(groups) == 0 {
			if i > 0 {
				continue
			}
			// No test of the package reaches the mutant. It is counted only if it compiles.
			if err := b.compiles(ctx, overlay, m, r); err != nil || r.Outcome == notGo {
				return r, err
			}
			continue
		}
		tried++
		if done, err := b.tryWith(ctx, folder, overlay, m, importPath, groups, r); done || err != nil {
			return r, err
		}
	}
	for _, importPath := range b.last[m.Package] {
		if done, err := b.tryWhole(ctx, folder, overlay, m, importPath, r); done || err != nil {
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

// compiles sets the outcome to notGo if the mutated package does not compile.
func (b *bench) compiles(ctx context.Context, overlay string, m *mutant, r *result) error {
	cmd := command(ctx, "go", "build", "-o", os.DevNull, "-overlay="+overlay, m.Package)
	cmd.Dir = b.dir
	output, err := cmd.CombinedOutput()
	return r.refused(ctx, output, err)
}

// refused takes the result of a build. It returns an error if the build failed for another reason than the mutant.
func (r *result) refused(ctx context.Context, output []byte, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !regexp.MustCompile(`(?m)\.go:\d+:\d+: `).Match(output):
		return fmt.Errorf("build mutant %s: %w\n%s", r.ID, err, output)
	}
	r.Outcome, r.output = notGo, output
	return nil
}

// tryWith runs groups of tests of one package with the mutant. It reports whether the outcome is final.
func (b *bench) tryWith(
	ctx context.Context, folder, overlay string, m *mutant, importPath string, groups [][]testRun, r *result,
) (done bool, err error) {
	binary := filepath.Join(folder, "x.test")
	output, err := b.build(ctx, importPath, binary, "-overlay="+overlay)
	if err := r.refused(ctx, output, err); err != nil || r.Outcome == notGo {
		return true, err
	}
	for _, tests := range groups {
		var timeout time.Duration
		for _, t := range tests {
			timeout += 3 * t.duration
		}
		timeout = (timeout + b.slack).Round(time.Second)
		output, err = b.test(ctx, importPath, binary, timeout, "-test.run="+runPattern(tests))
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		r.Tests += len(tests)
		var exit *exec.ExitError
		switch {
		case err == nil:
			r.Outcome = survived
			continue
		case bytes.Contains(output, []byte("panic: test timed out")) || errors.As(err, &exit) && exit.ExitCode() == -1:
			r.Outcome = timedOut
		case errors.As(err, &exit):
			r.Outcome = killed
		default:
			return true, fmt.Errorf("run the tests of %s with mutant %s: %w", importPath, m.ID, err)
		}
		r.By, r.output = failedTest(importPath, output), output
		return true, nil
	}
	return false, nil
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
