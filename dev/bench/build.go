package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
)

// binDir is where the programs are built, in the folder of the benchmarks.
const binDir = ".bin"

// buildAll builds the programs, and measures the smallest controllers' binaries.
func (r *runner) buildAll(ctx context.Context) error {
	for _, c := range modules(contestants(nil)) {
		if !r.uses(c.module) {
			continue
		}
		r.progress("build %s", c.title)
		program := r.binary(c.module)
		if err := r.build(ctx, c.module, ".", program, ""); err != nil {
			return err
		}
		if c.compat {
			continue // it has no folder smallest
		}
		smallest := r.binary(c.module + "-smallest")
		if err := r.build(ctx, c.module, "./smallest", smallest, ""); err != nil {
			return err
		}
		info, err := os.Stat(smallest)
		if err != nil {
			return err
		}
		built, err := buildinfo.ReadFile(smallest)
		if err != nil {
			return err
		}
		r.results.add("binary_bytes", c.name, float64(info.Size()))
		r.results.add("modules", c.name, float64(len(built.Deps)))
		r.results.GoVersion = built.GoVersion
		for _, module := range built.Deps {
			switch module.Path {
			case c.library:
				r.results.Versions[c.name] = module.Version
			case "k8s.io/client-go":
				r.results.Kubernetes[c.name] = module.Version
			}
		}
		if c.name == evenKeel {
			r.results.Versions[c.name] = machine.Commit(ctx, r.dir)
		}
	}
	return nil
}

// coldBuilds builds each smallest controller with an empty build cache.
func (r *runner) coldBuilds(ctx context.Context) error {
	for _, c := range modules(contestants(nil)) {
		if !r.uses(c.module) || c.compat {
			continue
		}
		r.progress("cold build of the smallest controller on %s", c.title)
		cache, err := os.MkdirTemp("", "bench-gocache-")
		if err != nil {
			return err
		}
		begin := time.Now()
		err = r.build(ctx, c.module, "./smallest", filepath.Join(cache, "smallest"), cache)
		r.results.add("cold_build_seconds", c.name, time.Since(begin).Seconds())
		if removeErr := os.RemoveAll(cache); err == nil {
			err = removeErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build builds a package of a program's module. cache is the build cache; empty: the usual.
func (r *runner) build(ctx context.Context, module, pkg, output, cache string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", output, pkg)
	command.Dir = filepath.Join(r.dir, module)
	command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if cache != "" {
		command.Env = append(command.Env, "GOCACHE="+cache)
	}
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, module, err, bytes.TrimSpace(text))
	}
	return nil
}

func (r *runner) binary(name string) string { return filepath.Join(r.dir, binDir, name) }
