package localcluster

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// module writes a small module, which builds in about a second, and returns its folder.
func module(t *testing.T, mainSource string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/small\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), mainSource)
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const helloSource = "package main\n\nfunc main() { println(\"hello\") }\n"

func newBuilder(t *testing.T, progress io.Writer) builder {
	t.Helper()
	return builder{goCommand: "go", cache: filepath.Join(t.TempDir(), "cache"), progress: progress}
}

func TestBuildIsCachedByContent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBuilder(t, &out)
	source := module(t, helloSource)
	ctx := t.Context()
	first, err := b.build(ctx, source)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(ctx, first).CombinedOutput()
	if err != nil || string(said) != "hello\n" {
		t.Fatalf("the binary's output is %q, %v", said, err)
	}
	for _, want := range []string{"once for this version", "minutes", "disk", "built in"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, out.String())
		}
	}

	out.Reset()
	write(t, filepath.Join(source, "notes.txt"), "not a part of the binary")
	second, err := b.build(ctx, source)
	if err != nil || second != first || out.Len() > 0 {
		t.Errorf("second build: %s, %v, output %q; want the cached %s without output", second, err, out.String(), first)
	}

	write(t, filepath.Join(source, "more.go"), "package main\n")
	other, err := b.build(ctx, source)
	if err != nil || other == first {
		t.Errorf("build of changed source: %s, %v; want another path", other, err)
	}
}

func TestConcurrentBuildsBuildOnce(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, nil)
	source := module(t, helloSource)
	const processes = 4
	outs := make([]bytes.Buffer, processes)
	var group sync.WaitGroup
	for i := range processes {
		// flock excludes open files, not processes, so goroutines are enough for the test.
		group.Go(func() {
			b := b
			b.progress = &outs[i]
			if _, err := b.build(t.Context(), source); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	built := 0
	for i := range outs {
		built += strings.Count(outs[i].String(), "built in")
	}
	if built != 1 {
		t.Errorf("%d of %d processes built, want 1", built, processes)
	}
}

func TestBuildErrors(t *testing.T) {
	t.Parallel()
	broken := module(t, "package main\n\nfunc main() { undefinedThing() }\n")
	tests := map[string]struct {
		goCommand, source string
		want              []string
	}{
		"no go command": {"no-such-go", broken, []string{"needs the go command", "no-such-go", "install Go", "Config.Binary"}},
		"no source":     {"go", filepath.Join(broken, "missing"), []string{"missing"}},
		"compile error": {"go", broken, []string{"building " + broken, "undefined: undefinedThing", "main.go:3"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBuilder(t, io.Discard)
			b.goCommand = test.goCommand
			_, err := b.build(t.Context(), test.source)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(b.cache, "building-*")); len(left) > 0 {
				t.Errorf("remaining files: %v", left)
			}
		})
	}
}

func TestBuildWaitsForLockUntilContextEnds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBuilder(t, &out)
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := b.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*lockPoll)
	defer cancel()
	if _, err := b.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
	if !strings.Contains(out.String(), "waiting for another process") {
		t.Errorf("progress is %q", out.String())
	}
}

func TestUnusedBinariesAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, io.Discard)
	old := time.Now().Add(-unusedFor - time.Hour)
	for _, name := range []string{"old", "used", "building-1"} {
		if err := os.MkdirAll(filepath.Join(b.cache, name), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(b.cache, name, "localcluster")
		write(t, path, "")
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if !isCached(filepath.Join(b.cache, "used", "localcluster")) {
		t.Error("isCached returned false for a cached binary")
	}
	if err := b.removeUnused(time.Now().Add(-unusedFor)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(b.cache, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "used" {
		t.Errorf("remaining binaries are %v, %v; want only the one in use", left, err)
	}
}

// Not parallel: it changes the environment.
func TestBuildIgnoresBuildEnvironment(t *testing.T) {
	source := module(t, helloSource)
	t.Setenv("GOFLAGS", "-mod=vendor -race -tags=something")
	t.Setenv("GOWORK", filepath.Join(source, "no.work"))
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOAMD64", "v4")
	t.Setenv("GOARM64", "v9.0")
	t.Setenv("GOEXPERIMENT", "jsonv2")
	t.Setenv("GOFIPS140", "latest")
	binary, err := newBuilder(t, io.Discard).build(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), binary).Run(); err != nil {
		t.Errorf("the binary is not for %s: %v", runtime.GOOS, err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range info.Settings {
		switch setting.Key + "=" + setting.Value {
		case "GOAMD64=v1", "GOARM64=v8.0":
			continue
		}
		switch setting.Key {
		case "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "-tags", "-race":
			t.Errorf("built with the caller's %s=%s", setting.Key, setting.Value)
		}
	}
}

func TestSourceFromEnvironment(t *testing.T) {
	source := module(t, "package main\n\nfunc main() { undefinedThing() }\n")
	// Go's own cache has the same parent folder. It must stay, because filling a new one takes long.
	goCache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(EnvSource, source)
	t.Setenv(envKubernetesVersion, "")
	_, err = Start(t.Context(), Config{Progress: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "localcluster: building "+source) {
		t.Errorf("got %v, want a failed build of %s", err, source)
	}
}

func TestFindSource(t *testing.T) {
	t.Parallel()
	source, err := newBuilder(t, io.Discard).findSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil || !strings.HasPrefix(string(content), "module "+clusterModulePath+"\n") {
		t.Errorf("found %s, which is not the cluster's module: %v", source, err)
	}
	if flags := newBuilder(t, io.Discard).linkerFlags(source); !strings.Contains(flags, "gitVersion=v1.") || !strings.Contains(flags, "gitMajor=1 ") {
		t.Errorf("linker flags are %q, without the Kubernetes version", flags)
	}
}
