package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// unusedFor is how long a cached binary may go unused before the next build
	// removes it.
	unusedFor = 30 * 24 * time.Hour

	// lockPoll is how often a build that waits for another looks again.
	lockPoll = 200 * time.Millisecond

	// goFlags are those of every build here. The version control system has no part
	// in it: asking git can fail, as for a checkout that is another user's.
	goFlags = "-mod=readonly -buildvcs=false"
)

// Build builds the localcluster binary, unless it is cached, and returns its path.
// Start does it by itself; call it to have the minutes of the first build at a
// moment of your choice.
//
// Flow:
//  1. Find the source: [EnvSource], else the module localcluster beside the
//     Even Keel that the go command finds in the working directory, else beside
//     this package's own source, else the published module of the same version.
//  2. Look into the cache, by a hash of that source, the Go version and the
//     platform: evenkeel/localcluster in the user's cache directory.
//  3. Build with the go command, telling progress how far it is. Environment
//     variables that change builds (GOFLAGS, GOWORK, GOOS, GOAMD64, ...) do
//     not reach this one.
//
// Guarantees: of many processes that call Build, one builds and the others wait.
// A cached binary is complete. Binaries unused for 30 days are removed.
//
// The first build takes minutes (four to six on two cores that have nothing else
// to do) and about 4 GB in Go's caches, which later builds share.
//
// Errors: no go command, no source, a build that failed (with the compiler's last
// lines), and the end of ctx.
func Build(ctx context.Context, progress io.Writer) (path string, err error) {
	if err := supported(); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("localcluster: finding the cache directory for the binary: %w", err)
	}
	b := builder{goCommand: "go", cache: filepath.Join(cache, "evenkeel", "localcluster"), progress: progress}
	if path, err = b.build(ctx, os.Getenv(EnvSource)); err != nil {
		return "", fmt.Errorf("localcluster: %w", err)
	}
	return path, nil
}

// builder is Build without its surroundings.
type builder struct {
	goCommand string
	cache     string
	progress  io.Writer
}

func (b builder) build(ctx context.Context, source string) (string, error) {
	if _, err := exec.LookPath(b.goCommand); err != nil {
		return "", fmt.Errorf("the cluster is built from source and needs the go command: %w; install Go (go.dev/dl) or set Config.Binary to a localcluster built elsewhere", err)
	}
	if source == "" {
		var err error
		if source, err = b.findSource(ctx); err != nil {
			return "", err
		}
	}
	key, err := b.key(ctx, source)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(b.cache, key, "localcluster")
	if isCached(binary) {
		return binary, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache for the binary: %w", err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isCached(binary) {
		return binary, nil // built while we waited for the lock
	}
	if err := b.compile(ctx, source, binary); err != nil {
		return "", err
	}
	return binary, b.removeUnused(time.Now().Add(-unusedFor))
}

// isCached reports whether the binary is there, and notes that it is used.
func isCached(binary string) bool {
	now := time.Now()
	return os.Chtimes(binary, now, now) == nil
}

// lock makes this the only process that changes the cache. There is one lock for
// all versions: it is never removed, so it cannot be locked twice.
func (b builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the cache: %w", err)
	}
	told := false
	err = wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		locked, err := tryLock(file)
		if err == nil && !locked && !told {
			told = true
			fmt.Fprintln(b.progress, "localcluster: waiting for another process that is building")
		}
		return locked, err
	})
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("waiting for the build in another process: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

// compile builds source and puts the result in place in one step.
func (b builder) compile(ctx context.Context, source, binary string) error {
	temp, err := os.MkdirTemp(b.cache, "building-")
	if err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // else the next build does

	fmt.Fprintf(b.progress, "localcluster: building Kubernetes from source, once for this version: this takes some minutes and about 4 GB of disk in Go's caches\n")
	p := newProgress(b.progress)
	list := b.command(ctx, source, "list", "-deps", "-f", "{{.ImportPath}}", ".")
	output, err := p.run(ctx, list, "downloaded", "modules")
	if err != nil {
		return fmt.Errorf("listing the packages of %s: %w", source, err)
	}
	p.total = strings.Count(output, "\n")
	made := filepath.Join(temp, "localcluster")
	build := b.command(ctx, source, "build", "-v", "-o", made, "-ldflags", linkerFlags(source), ".")
	if _, err := p.run(ctx, build, "compiled", "packages"); err != nil {
		return fmt.Errorf("building %s: %w", source, err)
	}
	p.finish()
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return fmt.Errorf("making the cache for the binary: %w", err)
	}
	if err := os.Rename(made, binary); err != nil {
		return fmt.Errorf("putting the binary into the cache: %w", err)
	}
	return nil
}

// command is a go command in dir, on which the environment of the caller, which
// is often a "go test" with its own settings, has no influence.
func (b builder) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.goCommand, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(),
		"GOFLAGS="+goFlags, "GOWORK=off", "GO111MODULE=on",
		// For this machine, whatever the caller is being built for; without cgo, so
		// that no C compiler is needed.
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0",
		// For any processor of the kind, and without experiments: the key of the cache
		// does not tell them apart.
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	)
	return cmd
}

// removeUnused removes cached binaries that were last used before the time, and
// the remains of builds that were killed. The caller has the lock.
func (b builder) removeUnused(before time.Time) error {
	binaries, err := filepath.Glob(filepath.Join(b.cache, "*", "localcluster"))
	if err != nil {
		return fmt.Errorf("looking for unused binaries: %w", err)
	}
	remains, err := filepath.Glob(filepath.Join(b.cache, "building-*"))
	if err != nil {
		return fmt.Errorf("looking for the remains of builds: %w", err)
	}
	for _, binary := range binaries {
		if info, err := os.Stat(binary); err == nil && info.ModTime().Before(before) {
			remains = append(remains, filepath.Dir(binary))
		}
	}
	var errs []error
	for _, dir := range remains {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing unused binaries: %w", err)
	}
	return nil
}
