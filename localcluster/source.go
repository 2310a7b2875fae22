package localcluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// EnvSource is the name of the environment variable with the folder of the localcluster module's source, for developers
// of that module. Default: Build finds it.
const EnvSource = "EVENKEEL_LOCALCLUSTER_SOURCE"

const (
	modulePath        = "github.com/evenkeel-go/evenkeel"
	clusterModulePath = modulePath + "/localcluster/server"

	// versionsDir is the folder of the cluster's module with a go.mod for each Kubernetes version but the default.
	versionsDir = "versions"
)

// findSource returns the folder of the cluster's module.
func (b builder) findSource(ctx context.Context) (string, error) {
	// A repository, or a module that requires Even Keel, perhaps with a replace. Not b.command, because the caller's
	// environment and working directory matter here.
	dir, version := "", ""
	if output, err := exec.CommandContext(ctx, b.goCommand, "list", "-m", "-f", "{{.Dir}}\n{{.Version}}",
		modulePath).Output(); err == nil {
		dir, version, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	}
	candidates := []string{dir}
	if _, file, _, ok := runtime.Caller(0); ok {
		candidates = append(candidates, filepath.Join(filepath.Dir(file), ".."))
	}
	for _, candidate := range candidates {
		source := filepath.Join(candidate, "localcluster", "server")
		if _, err := os.Stat(filepath.Join(source, "go.mod")); candidate != "" && err == nil {
			return source, nil
		}
	}
	// A module in the module cache does not contain its nested modules.
	if version == "" {
		return "", fmt.Errorf("no source of the cluster found: neither the go command in the working directory nor "+
			"the folder of this package leads to %s; set %s to the folder of its source", clusterModulePath, EnvSource)
	}
	return b.download(ctx, version)
}

// download downloads the published module of the cluster and returns its folder in the module cache. The go command can
// build there.
func (b builder) download(ctx context.Context, version string) (string, error) {
	output, err := b.command(ctx, os.TempDir(), "mod", "download", "-json", clusterModulePath+"@"+version).Output()
	var module struct{ Dir, Error string }
	if parseErr := json.Unmarshal(output, &module); parseErr != nil {
		return "", fmt.Errorf("downloading %s@%s: %w", clusterModulePath, version, errors.Join(err, parseErr))
	}
	if module.Error != "" || err != nil {
		return "", fmt.Errorf("downloading %s@%s: %s; set %s to the folder of its source, or Config.Binary to an "+
			"existing localcluster binary", clusterModulePath, version, module.Error, EnvSource)
	}
	return module.Dir, nil
}

// key identifies the result of a build of source: equal keys mean equal binaries.
func (b builder) key(ctx context.Context, source string) (string, error) {
	output, err := b.command(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking the go command for its version in %s: %w", source, withStderr(err))
	}
	hash := sha256.New()
	fmt.Fprintln(hash, string(output), goFlags, b.linkerFlags(source))
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != source && (strings.HasPrefix(name, ".") || name == versionsDir) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") || !isSource(name) {
			return nil
		}
		return addFile(hash, source, path)
	})
	if sums, ok := strings.CutSuffix(b.modFile, ".mod"); ok && err == nil {
		err = errors.Join(addFile(hash, source, filepath.Join(source, b.modFile)),
			addFile(hash, source, filepath.Join(source, sums+".sum")))
	}
	if err != nil {
		return "", fmt.Errorf("reading the source of the cluster in %s: %w", source, err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// isSource reports whether a file is part of the binary. Other files, such as a binary that was built there by hand,
// must not change the key.
func isSource(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".mod", ".sum", ".yaml":
		return true
	}
	return false
}

func addFile(hash io.Writer, root, path string) error {
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The length separates a file's content from the next file.
	fmt.Fprintf(hash, "%q %d\n", filepath.ToSlash(relative), len(content))
	_, err = hash.Write(content)
	return err
}

// linkerFlags returns flags that set the binary's Kubernetes version from the go.mod of the build, and omit debug
// information.
func (b builder) linkerFlags(source string) string {
	flags := "-s -w"
	content, err := os.ReadFile(filepath.Join(source, cmp.Or(b.modFile, "go.mod")))
	if err != nil {
		return flags // the go command will report the error
	}
	v := regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)`).FindSubmatch(content)
	if v == nil {
		return flags
	}
	const variable = " -X k8s.io/component-base/version."
	return flags + fmt.Sprintf("%[1]sgitVersion=%[2]s%[1]sgitMajor=%[3]s%[1]sgitMinor=%[4]s", variable, v[1],
		v[2], v[3])
}

// withStderr adds a command's stderr to its error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
