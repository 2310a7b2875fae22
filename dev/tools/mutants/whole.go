package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// whole is what all tests of a package cover in one run without a mutant. Such tests share a cluster, so that running
// each on its own would take too long.
type whole struct {
	once sync.Once
	run  testRun
	err  error
}

// whole runs all tests of a package at once without a mutant, with coverage.
func (b *bench) whole(ctx context.Context, importPath string) *whole {
	b.mu.Lock()
	w := b.wholes[importPath]
	if w == nil {
		w = &whole{}
		b.wholes[importPath] = w
	}
	b.mu.Unlock()
	w.once.Do(func() {
		b.measuring(importPath)
		var folder string
		if folder, w.err = os.MkdirTemp(b.work, "whole"); w.err != nil {
			return
		}
		defer os.RemoveAll(folder) //nolint:errcheck // the temporary folder around it is removed at the end
		binary := filepath.Join(folder, "x.test")
		if output, err := b.build(ctx, importPath, binary, "-cover", "-coverpkg="+b.coverage); err != nil {
			w.err = fmt.Errorf("build the tests of %s without a mutant: %w\n%s", importPath, err, output)
			return
		}
		w.run.name = "Test"
		w.err = b.measureTest(ctx, importPath, binary, filepath.Join(folder, "cover.out"), "Test", &w.run)
	})
	return w
}

// tryWhole runs all tests of a package with the mutant, if they reach it. It reports whether the outcome is final. A
// test with a cluster that failed runs once more, so that a failure of the cluster on a busy machine does not kill a
// mutant.
func (b *bench) tryWhole(
	ctx context.Context, folder, overlay string, m *mutant, importPath string, r *result,
) (done bool, err error) {
	w := b.whole(ctx, importPath)
	if w.err != nil || !w.run.profile.covers(m) {
		return false, w.err
	}
	binary := filepath.Join(folder, "x.test")
	output, err := b.build(ctx, importPath, binary, "-overlay="+overlay)
	if err := r.refused(ctx, output, err); err != nil || r.Outcome == notGo {
		return true, err
	}
	r.Tests++
	pattern := "Test"
	for range 2 {
		timeout := (3*w.run.duration + b.slack).Round(time.Second)
		output, err = b.test(ctx, importPath, binary, timeout, "-test.run="+pattern)
		switch {
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		case err == nil:
			r.Outcome, r.By, r.output = survived, "", nil
			return false, nil
		}
		r.By, r.output = failedTest(importPath, output), output
		if name, ok := strings.CutPrefix(r.By, importPath+"."); ok {
			name, _, _ = strings.Cut(name, "/")
			pattern = "^" + name + "$"
		}
	}
	r.Outcome = killed
	return true, nil
}
