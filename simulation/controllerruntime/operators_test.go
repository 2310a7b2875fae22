package controllerruntime

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// published is a published operator on controller-runtime whose suites start a manager with its reconcilers.
type published struct {
	name, module string // the module with its version
	main         change // the change that a user makes
	mainPackage  string
	suites       []operatorSuite
	// engine are the further changes with which the reconcilers run on the engine, but for that of the suites. Without
	// them, the suites run only with the cache.
	engine []change
}

type operatorSuite struct {
	dir   string
	cache change // the same change, in the file of the suite that creates the manager
	// existing lets the suite run on an existing cluster, with each cache.
	existing []change
}

// change is a replacement of a text that a file of the module contains once.
type change struct{ file, from, to string }

const (
	createManager = "ctrl.NewManager(cfg, ctrl.Options{"
	newCache      = "NewCache: controllerruntime.NewCache"
	clientOption  = "NewClient: controllerruntime.NewClient"
)

// options is the change of a call of NewManager.
func options(file, call string) change { return change{file, call, call + newCache + ","} }

func operators() []published {
	trustSuite := func(dir string) operatorSuite {
		file := dir + "/env.go"
		return operatorSuite{
			dir, options(file, createManager),
			[]change{{file, "UseExistingCluster: new(false),", "UseExistingCluster: new(true),"}},
		}
	}
	jobSetSuite := func(dir string) operatorSuite {
		return operatorSuite{dir, options(dir+"/suite_test.go", createManager), nil}
	}
	onEngine := func(file string) change {
		const call = ".NewControllerManagedBy(mgr)"
		return change{file, "ctrl" + call, "controllerruntime" + call}
	}
	return []published{
		{
			name: "trust-manager", module: "github.com/cert-manager/trust-manager@v0.25.0",
			main:        options("cmd/trust-manager/app/app.go", "ctrl.NewManager(opts.RestConfig, ctrl.Options{"),
			mainPackage: "./cmd/trust-manager",
			suites:      []operatorSuite{trustSuite("test/integration/bundle"), trustSuite("test/integration/clusterbundle")},
		},
		{
			name: "jobset", module: "sigs.k8s.io/jobset@v0.12.0",
			main: change{
				"main.go", "options.Metrics = metricsServerOptions\n",
				"options.Metrics = metricsServerOptions\noptions.NewCache = controllerruntime.NewCache\n",
			},
			mainPackage: ".",
			suites:      []operatorSuite{jobSetSuite("test/integration/controller"), jobSetSuite("test/integration/webhook")},
			engine: []change{
				{
					"main.go", "options.NewCache = controllerruntime.NewCache\n",
					"options.NewCache = controllerruntime.NewCache\noptions.NewClient = controllerruntime.NewClient\n",
				},
				onEngine("pkg/controllers/jobset_controller.go"), onEngine("pkg/controllers/pod_controller.go"),
			},
		},
	}
}

// TestOperators runs the suites of published operators on new local clusters, with controller-runtime's cache ("local"),
// with that of compat/controllerruntime ("compat"), which needs two lines: the import and the option, and also with its
// engine ("engine"). Their mains with these lines are compiled. The operators are copied from the module cache, or from
// the module proxy. A spec may fail only if explanations.txt has the reason. "make peers" shows the counts.
//
//nolint:paralleltest // beside other tests the suites, which wait for some seconds only, have too little time
func TestOperators(t *testing.T) {
	testlength.OnlyLong(t)
	for _, on := range []string{"local", "compat", "engine"} {
		t.Run(on, func(t *testing.T) {
			for _, op := range operators() {
				if on == "engine" && op.engine == nil {
					continue
				}
				t.Run(op.name, func(t *testing.T) { testOperator(t, on, op) })
			}
		})
	}
}

func testOperator(t *testing.T, on string, op published) {
	t.Helper()
	dir := copyModule(t, download(t, op.module))
	if on != "local" {
		apply(t, dir, op.main, importOf(op.main.file))
		if on == "engine" {
			for _, c := range op.engine {
				apply(t, dir, c)
				if c.file != op.main.file {
					apply(t, dir, importOf(c.file))
				}
			}
		}
		output(t, dir, "go", "build", "-mod=mod", "-o", filepath.Join(t.TempDir(), "main"), op.mainPackage)
	}
	for _, suite := range op.suites {
		t.Run(suite.dir, func(t *testing.T) {
			apply(t, dir, suite.existing...)
			if on != "local" {
				apply(t, dir, suite.cache, importOf(suite.cache.file))
			}
			if on == "engine" {
				apply(t, dir, change{suite.cache.file, newCache, newCache + ", " + clientOption})
			}
			name := on + "/" + op.name + "/" + suite.dir
			binary := compile(t, filepath.Join(dir, filepath.FromSlash(suite.dir)))
			report(t, name, explanationsOf(t, name), run(t, binary, startLocal(t)))
		})
	}
}

// download returns the folder of a module in the module cache, after a download if it is missing.
func download(t *testing.T, module string) (dir string) {
	t.Helper()
	var info struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, t.TempDir(), "go", "mod", "download", "-json", module)), &info); err != nil {
		t.Fatal(err)
	}
	return info.Dir
}

// importOf adds the import of the layer to a file.
func importOf(file string) change {
	return change{file, "import (\n", "import (\n\"" + library + "/" + layer + "\"\n"}
}

func apply(t *testing.T, dir string, changes ...change) {
	t.Helper()
	for _, c := range changes {
		file := filepath.Join(dir, filepath.FromSlash(c.file))
		text := read(t, file)
		if n := strings.Count(text, c.from); n != 1 {
			t.Fatalf("%s contains %q %d times, want once", c.file, c.from, n)
		}
		write(t, file, strings.Replace(text, c.from, c.to, 1))
	}
}
