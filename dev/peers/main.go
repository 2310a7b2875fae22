// Command peers runs the tests of controller-runtime with its own cache, and with that of compat/controllerruntime,
// each suite on a new local cluster. It prints the specs that fail, with their explanations in explanations.txt, and
// exits with 1 if one of them is not explained. The tests are copied from the module cache into a temporary folder.
//
// Arguments are the suites to run; default: cache, builder, controller, manager, source and client. Run it in the
// folder of the library.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

//go:embed explanations.txt
var explanations string

const (
	module = "sigs.k8s.io/controller-runtime"
	layer  = "compat/controllerruntime"
	// replaceCache is the environment variable that makes the tests use our cache.
	replaceCache = "EVENKEEL_CACHE"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	unexplained, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	if err != nil || unexplained > 0 {
		os.Exit(1)
	}
}

func allSuites() []string {
	return []string{"cache", "builder", "controller", "manager", "source", "client"}
}

func run(ctx context.Context, suites []string) (unexplained int, err error) {
	if len(suites) == 0 {
		suites = allSuites()
	}
	scratch, err := os.MkdirTemp("", "peers")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := prepare(ctx, scratch, suites); err != nil {
		return 0, err
	}
	for _, suite := range suites {
		binary := filepath.Join(scratch, suite+".test")
		_, err := output(ctx, scratch, "go", "test", "-mod=mod", "-vet=off", "-c", "-o", binary, "./pkg/"+suite)
		if err != nil {
			return unexplained, fmt.Errorf("compile the tests of %s: %w", suite, err)
		}
		for _, cache := range []string{"", "1"} {
			specs, err := runSuite(ctx, filepath.Join(scratch, "pkg", suite), binary, cache)
			if err != nil {
				return unexplained, fmt.Errorf("run the tests of %s: %w", suite, err)
			}
			unexplained += report(suite, cache, specs)
		}
	}
	return unexplained, nil
}

// prepare copies controller-runtime, lets its cache.New call ours, and adds a test file to each suite.
func prepare(ctx context.Context, scratch string, suites []string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	own := filepath.Join(root, filepath.FromSlash(layer))
	dir, err := output(ctx, own, "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return fmt.Errorf("find %s, from the folder of the library: %w", module, err)
	}
	if err := os.CopyFS(scratch, os.DirFS(strings.TrimSpace(dir))); err != nil {
		return fmt.Errorf("copy %s: %w", module, err)
	}
	if _, err := output(ctx, scratch, "chmod", "-R", "u+w", "."); err != nil {
		return err
	}
	const path = "github.com/evenkeel-go/evenkeel"
	if _, err := output(ctx, scratch, "go", "mod", "edit",
		"-require="+path+"@v0.0.0", "-replace="+path+"="+root,
		"-require="+path+"/"+layer+"@v0.0.0", "-replace="+path+"/"+layer+"="+own); err != nil {
		return err
	}
	for _, sums := range []string{filepath.Join(own, "go.sum"), filepath.Join(root, "go.sum")} {
		if err := appendFile(filepath.Join(scratch, "go.sum"), sums); err != nil {
			return err
		}
	}
	if err := replaceNew(filepath.Join(scratch, "pkg", "cache", "cache.go")); err != nil {
		return err
	}
	for _, suite := range suites {
		test := fmt.Sprintf(`package %s_test

import (
	"os"

	"%s/pkg/cache"
	"%s/%s"
)

func init() {
	if os.Getenv(%q) != "" {
		cache.Replaced = controllerruntime.NewCache
	}
}
`, suite, module, path, layer, replaceCache)
		file := filepath.Join(scratch, "pkg", suite, "zz_replaced_test.go")
		if err := os.WriteFile(file, []byte(test), 0o600); err != nil {
			return fmt.Errorf("add a test file: %w", err)
		}
	}
	return nil
}

// replaceNew lets cache.New in a file call the variable Replaced.
func replaceNew(file string) error {
	const signature = "func New(cfg *rest.Config, opts Options) (Cache, error) {\n"
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the cache: %w", err)
	}
	changed := strings.Replace(string(text), signature, "var Replaced func(*rest.Config, Options) (Cache, error)\n"+
		signature+"if Replaced != nil && opts.NewInformer == nil {\nreturn Replaced(cfg, opts)\n}\n", 1)
	if changed == string(text) {
		return fmt.Errorf("%s has no function New as it was", file)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return fmt.Errorf("change the cache: %w", err)
	}
	return nil
}

func appendFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("append %s: %w", from, err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("append to %s: %w", to, err)
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off")
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(text), nil
}

// spec is a test in a report of Ginkgo.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " / ")
}

func (s spec) failed() bool {
	return !slices.Contains([]string{"passed", "pending", "skipped"}, s.State)
}

// runSuite runs the compiled tests in dir on a new cluster.
func runSuite(ctx context.Context, dir, binary, cache string) (specs []spec, err error) {
	cluster, err := localcluster.Start(ctx, localcluster.Config{Progress: io.Discard})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	file := binary + cache + ".json"
	cmd := exec.CommandContext(ctx, binary, "-test.timeout=20m", "-test.v", "-ginkgo.json-report="+file)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), replaceCache+"="+cache,
		"USE_EXISTING_CLUSTER=true", "KUBECONFIG="+cluster.Kubeconfig())
	text, runErr := cmd.CombinedOutput()
	reported, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("no report: %w\n%s", runErr, text)
	}
	return results(reported, string(text), runErr)
}

// results returns the specs in a report of Ginkgo, and the tests that failed besides them. output and err are those of
// the process.
func results(report []byte, output string, err error) (specs []spec, _ error) {
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	for _, suite := range suites {
		specs = append(specs, suite.SpecReports...)
	}
	failed := regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllStringSubmatch(output, -1)
	// The one that runs the specs fails if a spec fails: then the specs have the explanations.
	if hasFailed := slices.ContainsFunc(specs, spec.failed); hasFailed && len(failed) == 1 {
		return specs, nil
	}
	for _, test := range failed {
		specs = append(specs, spec{LeafNodeText: test[1], State: "failed"})
	}
	if len(failed) == 0 && err != nil {
		specs = append(specs, spec{LeafNodeText: fmt.Sprintf("the process: %v", err), State: "failed"})
	}
	return specs, nil
}

// report prints the specs that failed, and returns the number of those that are not explained.
func report(suite, cache string, specs []spec) (unexplained int) {
	with := "its own cache"
	if cache != "" {
		with = "the cache of " + layer
	}
	counts := map[string]int{}
	var lines []string
	for _, s := range specs {
		counts[s.State]++
		if !s.failed() {
			continue
		}
		reason, ok := explanation(suite, s.name())
		if !ok {
			unexplained++
			reason = "NOT EXPLAINED: " + s.Failure.Message
		}
		reason = strings.ReplaceAll(reason, "\n", "\n    ")
		lines = append(lines, fmt.Sprintf("  %s: %s\n    %s", s.State, s.name(), reason))
	}
	fmt.Printf("%s with %s: %d passed, %d failed, %d skipped\n", suite, with, counts["passed"],
		len(lines), counts["pending"]+counts["skipped"])
	for _, line := range lines {
		fmt.Println(line)
	}
	return unexplained
}

// explanation returns the reason for which a spec of a suite fails. A line of explanations.txt is
// "suite: regexp: reason".
func explanation(suite, name string) (reason string, ok bool) {
	for line := range strings.Lines(explanations) {
		fields := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		if len(fields) == 3 && fields[0] == suite && regexp.MustCompile(fields[1]).MatchString(name) {
			return fields[2], true
		}
	}
	return "", false
}
