package controllerruntime

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

const (
	module  = "sigs.k8s.io/controller-runtime"
	library = "github.com/evenkeel-go/evenkeel"
	layer   = "compat/controllerruntime"
	// replaceCache is the environment variable that makes the tests use the cache of the layer.
	replaceCache = "EVENKEEL_CACHE"
)

// TestUpstream runs the tests of controller-runtime that need an API server, each suite on a new cluster in memory. The
// suites of what programs use also run on a new local cluster, with controller-runtime's cache ("local") and with that of
// compat/controllerruntime ("compat"). The tests are copied from the module cache. A spec may fail only if
// explanations.txt has the reason. "make peers" shows the counts.
func TestUpstream(t *testing.T) {
	t.Parallel()
	testlength.OnlyLong(t)
	used := []string{"builder", "cache", "client", "controller", "manager", "source"}
	others := []string{
		"client/apiutil", "cluster", "controller/controllerutil", "envtest", "handler", "internal/controller",
		"internal/recorder", "manager/internal/integration", "metrics/filters", "reconcile", "webhook",
	}
	source := copyRuntime(t, used)
	for _, on := range []struct {
		name   string
		suites []string
		cache  string // the value of replaceCache
		start  func(t *testing.T) (kubeconfig string)
	}{
		{"memory", slices.Concat(used, others), "", startMemory},
		{"local", used, "", startLocal},
		{"compat", used, "1", startLocal},
	} {
		for _, suite := range on.suites {
			name := on.name + "/" + suite
			t.Run(name, func(t *testing.T) {
				binary := compile(t, filepath.Join(source, "pkg", filepath.FromSlash(suite)))
				report(t, name, explanationsOf(t, name), run(t, binary, on.start(t), replaceCache+"="+on.cache))
			})
		}
	}
}

// compile compiles the tests in a folder, unless it has done so before.
func compile(t *testing.T, dir string) (binary string) {
	t.Helper()
	binary = filepath.Join(dir, "suite.test")
	if _, err := os.Stat(binary); err != nil {
		output(t, dir, "go", "test", "-mod=mod", "-vet=off", "-c", "-o", binary, ".")
	}
	return binary
}

// run runs the tests of a suite on a cluster, and returns the specs of their report.
func run(t *testing.T, binary, kubeconfig string, environment ...string) []spec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), binary, "-test.timeout=20m", "-test.v", "-ginkgo.json-report="+file)
	cmd.Env = append(append(os.Environ(), "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+kubeconfig), environment...)
	cmd.Dir = filepath.Dir(binary)
	text, runErr := cmd.CombinedOutput()
	reported, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no report: %v\n%s", runErr, text)
	}
	specs, err := results(reported, string(text), runErr)
	if err != nil {
		t.Fatal(err)
	}
	return specs
}

// startMemory starts a cluster in memory that has what envtest has, and returns its kubeconfig file. It calls webhooks
// at the host of their URL, and does not verify the certificate.
func startMemory(t *testing.T) (kubeconfig string) {
	t.Helper()
	cluster := simulation.New(t, simulation.Config{WithoutControllers: true})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	t.Cleanup(transport.CloseIdleConnections)
	cluster.HandleWebhooks(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "https", r.In.Host
	}})
	return cluster.Serve()
}

func startLocal(t *testing.T) (kubeconfig string) {
	t.Helper()
	cluster, err := localcluster.Start(t.Context(), localcluster.Config{Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster.Kubeconfig()
}

// copyRuntime copies controller-runtime, and lets its cache.New call that of the layer if a suite asks for it.
func copyRuntime(t *testing.T, suites []string) (dir string) {
	t.Helper()
	dir = copyModule(t, strings.TrimSpace(output(t, filepath.Join(root(t), layer), "go", "list", "-m", "-f", "{{.Dir}}", module)))
	cache := filepath.Join(dir, "pkg", "cache", "cache.go")
	write(t, cache, replaceNew(t, read(t, cache)))
	for _, suite := range suites {
		addTest(t, filepath.Join(dir, "pkg", suite), suite)
	}
	return dir
}

// copyModule copies a module from its folder in the module cache, and adds the library and the layer to what it requires.
func copyModule(t *testing.T, original string) (dir string) {
	t.Helper()
	root := root(t)
	own := filepath.Join(root, layer)
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "chmod", "-R", "u+w", ".")
	output(t, dir, "go", "mod", "edit",
		"-require="+library+"@v0.0.0", "-replace="+library+"="+root,
		"-require="+library+"/"+layer+"@v0.0.0", "-replace="+library+"/"+layer+"="+own)
	sums := filepath.Join(dir, "go.sum")
	write(t, sums, read(t, sums)+read(t, filepath.Join(own, "go.sum"))+read(t, filepath.Join(root, "go.sum")))
	return dir
}

// root returns the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.FromSlash("../.."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// replaceNew lets cache.New in the text of its file call the variable Replaced.
func replaceNew(t *testing.T, text string) string {
	t.Helper()
	const signature = "func New(cfg *rest.Config, opts Options) (Cache, error) {\n"
	changed := strings.Replace(text, signature, "var Replaced func(*rest.Config, Options) (Cache, error)\n"+
		signature+"if Replaced != nil && opts.NewInformer == nil {\nreturn Replaced(cfg, opts)\n}\n", 1)
	if changed == text {
		t.Fatal("package cache has no function New as it was")
	}
	return changed
}

// addTest adds a file to a suite that sets Replaced.
func addTest(t *testing.T, dir, suite string) {
	t.Helper()
	write(t, filepath.Join(dir, "zz_replaced_test.go"), fmt.Sprintf(`package %s_test

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
`, suite, module, library, layer, replaceCache))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(text)
}
