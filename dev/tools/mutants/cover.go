package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/cover"
)

// baseline is what the tests of a package cover without a mutant, each of them on its own.
type baseline struct {
	once  sync.Once
	tests []testRun
	err   error
}

// testRun is one test, example or fuzz test (with its seeds), or all tests of a package that share a cluster.
type testRun struct {
	name     string // a regular expression
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
	b.printf("measuring what the tests of %s reach\n", importPath)
	folder, err := os.MkdirTemp(b.work, "baseline")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the temporary folder around it is removed at the end
	binary := filepath.Join(folder, "x.test")
	if output, err := b.build(ctx, importPath, binary, "-cover", "-coverpkg="+b.coverage); err != nil {
		return nil, fmt.Errorf("build the tests of %s without a mutant: %w\n%s", importPath, err, output)
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, nil // the package has no tests
	}
	tests, err := b.list(ctx, importPath, binary)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range tests {
		group.Go(func() error { // group.Wait below waits for it
			out := filepath.Join(folder, fmt.Sprintf("cover%d.out", i))
			return b.measureTest(ctx, importPath, binary, out, &tests[i])
		})
	}
	return tests, group.Wait()
}

// list returns the tests of a binary. Tests that share a cluster are one, because starting it takes too long.
func (b *bench) list(ctx context.Context, importPath, binary string) ([]testRun, error) {
	if b.isLast(importPath) {
		return []testRun{{name: "Test.*"}}, nil
	}
	output, err := b.test(ctx, importPath, binary, time.Minute, "-test.list=.")
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", importPath, err, output)
	}
	var tests []testRun
	for name := range strings.FieldsSeq(string(output)) {
		if regexp.MustCompile("^(Test|Example|Fuzz)").MatchString(name) {
			tests = append(tests, testRun{name: name})
		}
	}
	return tests, nil
}

func (b *bench) measureTest(ctx context.Context, importPath, binary, out string, t *testRun) error {
	var output []byte
	var err error
	for range 2 { // a second time for a test that fails on a busy machine
		began := time.Now()
		output, err = b.test(ctx, importPath, binary, 20*time.Minute, "-test.run="+runPattern(*t),
			"-test.coverprofile="+out)
		t.duration = time.Since(began)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			t.profile, err = readProfile(out)
			return err
		}
	}
	return fmt.Errorf("%s.%s fails without a mutant, repair it first: %w\n%s", importPath, t.name, err, tail(output))
}

// profile is a coverage profile: blocks by "import path/file.go".
type profile map[string][]cover.ProfileBlock

func readProfile(name string) (profile, error) {
	files, err := cover.ParseProfiles(name)
	found := profile{}
	for _, file := range files {
		found[file.FileName] = file.Blocks
	}
	return found, err
}

// covers reports whether the tests reach the mutant. Code outside of all blocks (declarations of the package,
// conditions of cases) counts as reached if any part of the file is.
func (p profile) covers(m *mutant) bool {
	inBlock, reached, anywhere := false, false, false
	for _, b := range p[m.Package+"/"+path.Base(m.File)] {
		anywhere = anywhere || b.Count > 0
		afterStart := m.Line > b.StartLine || m.Line == b.StartLine && m.column >= b.StartCol
		beforeEnd := m.Line < b.EndLine || m.Line == b.EndLine && m.column < b.EndCol
		if afterStart && beforeEnd {
			inBlock = true
			reached = reached || b.Count > 0
		}
	}
	if !inBlock {
		return anywhere
	}
	return reached
}
