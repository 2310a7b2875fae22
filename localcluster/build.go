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
	// unusedFor is the time after its last use when the next build removes a cached binary.
	unusedFor = 30 * 24 * time.Hour

	// lockPoll is the interval in which a waiting build checks the lock.
	lockPoll = 200 * time.Millisecond

	// goFlags are the flags of every build. They disable the version control stamp, because git can fail, for example
	// in a checkout that belongs to another user. Without debugging information, compiling takes a fifth less time; the
	// Makefile has the same flag for the tests of the source, which would otherwise compile Kubernetes again.
	goFlags = "-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false"
)

// Build builds the localcluster binary, unless it is cached, and returns its path. Start calls it. Call it earlier to
// control when the first build happens, which takes minutes. kubernetesVersion is as [Config.KubernetesVersion].
//
// Flow:
//  1. Find the source: [EnvSource]; otherwise the module localcluster next to the
//     Even Keel that the go command finds in the working directory; otherwise next
//     to this package's own source; otherwise the published module of the same version.
//  2. Look up the binary in the cache (evenkeel/localcluster in the user's cache
//     directory) by a hash of the source, the versions and the platform.
//  3. Build it with the go command, and write the progress to progress. Environment
//     variables that change builds (GOFLAGS, GOWORK, GOOS, GOAMD64, ...) have no
//     effect.
//
// Guarantees: if several processes call Build, one of them builds and the others wait. A cached binary is complete.
// Binaries that have not been used for 30 days are removed.
//
// The first build takes minutes (seven to eight on two idle cores) and about 4 GB in Go's caches, which later builds
// share.
//
// Errors: an unsupported version, no go command, no source, a failed build (with the compiler's last lines), and the
// end of ctx.
func Build(ctx context.Context, kubernetesVersion string, progress io.Writer) (path string, err error) {
	if err := supported(); err != nil {
		return "", err
	}
	version, err := requestedVersion(kubernetesVersion)
	if err != nil {
		return "", fmt.Errorf("localcluster: selecting the Kubernetes version: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("localcluster: finding the cache directory for the binary: %w", err)
	}
	b := builder{
		goCommand: "go", cache: filepath.Join(cache, "evenkeel", "localcluster"), progress: progress,
		modFile: version.modFile(),
	}
	if path, err = b.build(ctx, os.Getenv(EnvSource)); err != nil {
		return "", fmt.Errorf("localcluster: %w", err)
	}
	return path, nil
}

// builder builds binaries. Tests replace its fields.
type builder struct {
	goCommand string
	cache     string
	progress  io.Writer
	modFile   string // path in the source's folder of a file that replaces go.mod, or ""
}

func (b builder) build(ctx context.Context, source string) (string, error) {
	if _, err := exec.LookPath(b.goCommand); err != nil {
		return "", fmt.Errorf("building the cluster from source needs the go command: %w; install Go (go.dev/dl), or "+
			"set Config.Binary to an existing localcluster binary", err)
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
		return "", fmt.Errorf("creating the cache for the binary: %w", err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isCached(binary) {
		return binary, nil // another process built it before it released the lock
	}
	if err := b.compile(ctx, source, binary); err != nil {
		return "", err
	}
	return binary, b.removeUnused(time.Now().Add(-unusedFor))
}

// isCached reports whether the binary exists, and records its use.
func isCached(binary string) bool {
	now := time.Now()
	return os.Chtimes(binary, now, now) == nil
}

// lock gives this process exclusive write access to the cache. There is one lock file for all versions, which must
// never be removed, because another process could then lock a new one.
func (b builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the cache: %w", err)
	}
	announced := false
	err = wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		locked, err := tryLock(file)
		if err == nil && !locked && !announced {
			announced = true
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

// compile builds source, and moves the result to binary atomically.
func (b builder) compile(ctx context.Context, source, binary string) error {
	temp, err := os.MkdirTemp(b.cache, "building-")
	if err != nil {
		return fmt.Errorf("creating a build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // the next build removes it after an error

	fmt.Fprintf(b.progress, "localcluster: building Kubernetes from source, once for this version: it takes a few "+
		"minutes and about 4 GB of disk in Go's caches\n")
	p := newProgress(b.progress)
	modFile := "-modfile=" + b.modFile // go.mod if it is empty
	list := b.command(ctx, source, "list", modFile, "-deps", "-f", "{{.ImportPath}}", ".")
	output, err := p.run(ctx, list, "downloaded", "modules")
	if err != nil {
		return fmt.Errorf("listing the packages of %s: %w", source, err)
	}
	p.total = strings.Count(output, "\n")
	built := filepath.Join(temp, "localcluster")
	build := b.command(ctx, source, "build", modFile, "-v", "-o", built, "-ldflags", b.linkerFlags(source), ".")
	if _, err := p.run(ctx, build, "compiled", "packages"); err != nil {
		return fmt.Errorf("building %s: %w", source, err)
	}
	p.finish()
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return fmt.Errorf("creating the cache for the binary: %w", err)
	}
	if err := os.Rename(built, binary); err != nil {
		return fmt.Errorf("moving the binary to the cache: %w", err)
	}
	return nil
}

// command returns a go command in dir. It ignores build settings in the caller's environment, which is often a "go
// test" with its own settings.
func (b builder) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.goCommand, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(),
		"GOFLAGS="+goFlags, "GOWORK=off", "GO111MODULE=on",
		"GOGC=400", // the compiler and the linker take an eighth less time
		// For this machine, even if the caller is cross-compiled; without cgo, so that no C compiler is needed.
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0",
		// For any processor of this architecture and without experiments, because the cache key does not contain them.
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	)
	return cmd
}

// removeUnused removes cached binaries that were last used before the time, and remains of builds that were killed. The
// caller must hold the lock.
func (b builder) removeUnused(before time.Time) error {
	binaries, err := filepath.Glob(filepath.Join(b.cache, "*", "localcluster"))
	if err != nil {
		return fmt.Errorf("finding unused binaries: %w", err)
	}
	leftovers, err := filepath.Glob(filepath.Join(b.cache, "building-*"))
	if err != nil {
		return fmt.Errorf("finding remains of builds: %w", err)
	}
	for _, binary := range binaries {
		if info, err := os.Stat(binary); err == nil && info.ModTime().Before(before) {
			leftovers = append(leftovers, filepath.Dir(binary))
		}
	}
	var errs []error
	for _, dir := range leftovers {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing unused binaries: %w", err)
	}
	return nil
}
