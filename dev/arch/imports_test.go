package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const module = "github.com/evenkeel-go/evenkeel"

// goPackage is a package in the output of go list -json.
type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string // of its non-test files
	Deps       []string // Imports and their imports, recursively
	// The imports of its test files, in the package and beside it.
	TestImports, XTestImports []string
}

// place defines which packages of this module a package may import.
type place struct {
	// layer is the package's layer in the engine, from 1. A package of the engine may import packages of lower layers,
	// never of its own. 0: the package is not part of the engine, and only may applies.
	layer int
	// foundation is true for a package that every package of the library may import.
	foundation bool
	// alone is true for a package that imports only packages in may, also in its tests.
	alone bool
	// may contains further packages that it may import. A name that ends in /... allows the tree.
	may []string
	// never contains packages that it must not depend on, directly or indirectly; why is part of the error message.
	never []string
	why   string
}

// layers returns the place of each package of the main module, by its path in the module; a path that ends in /...
// includes the tree below it. The engine is one line, in the order of the event path:
//
//	retry <- kube, internal/workqueue <- internal/wire <- internal/store <- informer <- controller, predicate <- source, middleware, metrics/prometheus
func layers() map[string]place {
	const noEngine = "requests need neither cache nor controller: callers pass them as interfaces"
	const standalone = "leader election must be usable with any controller, and testable without one"
	return map[string]place{
		// The one value joins the parts. No package imports it.
		".": {may: []string{
			"client", "controller", "event", "finalizer", "informer", "kube", "manager", "metrics/prometheus", "middleware",
			"owned", "owned/watched", "readiness", "status", "webhook", "internal/manifests", "leader",
		}},
		"internal/manifests":    {may: []string{"internal/apiobject"}},
		"retry":                 {layer: 1},
		"kube":                  {layer: 1, may: []string{"retry"}},
		"internal/workqueue":    {layer: 1},
		"internal/wire":         {layer: 2},
		"internal/store":        {layer: 3},
		"internal/cache":        {layer: 3}, // what the packages of this module share of informers
		"internal/difference":   {layer: 3}, // differences and patches of objects
		"informer":              {layer: 4},
		"controller":            {layer: 5},
		"predicate":             {layer: 5},
		"source":                {layer: 6},
		"source/poll":           {layer: 6},
		"middleware":            {layer: 6, may: []string{"client", "finalizer", "status"}},
		"informer/subscription": {layer: 6},
		"metrics/prometheus":    {layer: 6, may: []string{"leader"}},          // reads the state of elections
		"owned/watched":         {layer: 7, may: []string{"client", "owned"}}, // joins toolkit and engine

		// How functions, values, errors and Configs of the library's users are treated.
		"internal/usercode": {foundation: true},
		// The rules of retries.
		"internal/retryrules": {foundation: true, may: []string{"retry"}},
		// Maps that shrink.
		"internal/shrink": {foundation: true},
		// The context outside of the observers of requests, and the observers of runs and of tasks.
		"internal/observers": {foundation: true},
		// The cluster of a program.
		"internal/kubeconfig": {foundation: true},
		// The Go types of objects, their fields, and the order of resource versions.
		"internal/apiobject": {foundation: true},
		// HTTP servers with limits, and their authorization.
		"internal/httpauth": {may: []string{"kube"}},
		// Certificate authorities and the certificates of servers.
		"internal/certificates": {foundation: true},
		"internal/httpserver":   {foundation: true, may: []string{"internal/usercode"}},
		// Terms of leadership, their contexts and the transport of their writes.
		"internal/leadership": {foundation: true, may: []string{"retry"}},

		// Parts of the controller.
		"controller/internal/detect":        {layer: 4},
		"controller/internal/interruptions": {layer: 4},
		"controller/internal/ownwrites":     {layer: 4},
		"controller/internal/resync":        {layer: 4},

		"leader": {may: []string{"kube"}, never: []string{"controller", "informer"}, why: standalone},

		"webhook": {may: []string{"client", "internal/difference", "internal/manifests", "internal/wire", "kube"}, never: []string{"controller", "informer"}, why: "hooks read from what the program gives them"},

		"manager": {may: []string{"internal/httpauth", "kube", "leader"}, never: []string{"controller", "informer"}, why: "it runs anything with Run(ctx) error"},

		// The toolkit: reads and writes of handlers. It does not need the engine.
		"readiness":          {may: []string{"kube", "internal/difference"}},
		"client":             {may: []string{"kube", "retry", "readiness", "internal/cache", "internal/difference"}, never: []string{"controller", "informer"}, why: noEngine},
		"client/strategic":   {may: []string{"kube", "client", "internal/difference"}, never: []string{"controller", "informer"}, why: noEngine},
		"internal/patchtest": {may: []string{"kube", "client"}, never: []string{"controller", "informer"}, why: noEngine},
		"compat":             {may: []string{"kube", "client", "internal/cache", "internal/difference"}, never: []string{"controller", "informer"}, why: noEngine},
		"owned/ownerref":     {may: []string{"kube", "retry", "client", "internal/patchtest"}, never: []string{"controller", "informer"}, why: noEngine},
		"status":             {may: []string{"kube", "retry", "client", "readiness", "internal/difference", "internal/patchtest"}, never: []string{"controller", "informer"}, why: noEngine},
		"finalizer":          {may: []string{"kube", "retry", "client", "internal/difference", "internal/patchtest"}, never: []string{"controller", "informer"}, why: noEngine},
		"owned":              {may: []string{"kube", "retry", "client", "readiness", "owned/ownerref", "internal/cache", "internal/patchtest"}, never: []string{"controller", "informer"}, why: noEngine},
		"crd":                {may: []string{"kube", "retry", "client", "readiness"}, never: []string{"controller", "informer"}, why: noEngine},
		"event":              {may: []string{"kube", "retry"}, never: []string{"controller", "informer"}, why: "the controller takes a recorder as an interface"},

		// Tests and commands start a cluster with it. It imports no other package of the
		// module, so that a defect in the tested code cannot break it.
		"localcluster": {},

		"localcluster/cmd/...": {may: []string{"localcluster"}},
		"dev/arch":             {},
		"internal/clustertest": {may: []string{"client", "controller", "informer", "kube", "localcluster"}},
		// An API server for tests, which any package's tests may use. It imports nothing of the library, so that a defect in
		// the tested code cannot break it.
		"internal/apiserver/...": {alone: true, may: []string{"internal/apiserver/..."}},
		// The API server of the tests of this module.
		"internal/apitest": {may: []string{"internal/apiserver/...", "kube"}},

		"internal/apitest/requestlog":    {may: []string{"client", "kube"}},
		"internal/apitest/kindserver":    {may: []string{"internal/apiserver/...", "internal/apitest", "informer", "kube"}},
		"internal/certificates/certtest": {may: []string{"internal/certificates"}}, // client certificates of tests
		"internal/crdtest":               {},                                       // definitions of tests
		"internal/testlength":            {foundation: true},                       // the counts of long tests
		"internal/errtest":               {foundation: true},                       // API errors of tests
		"internal/testlog":               {foundation: true},                       // the log buffer of tests
		"internal/testrun":               {foundation: true},                       // runs controllers of tests
		"internal/testfile":              {foundation: true},                       // the generated files of tests
		"dev/contractmatrix":             {},                                       // tests only
		"dev/internal/docs/...": {
			may: []string{"dev/internal/docs/..."},
		},
	}
}

// checkImports returns the problems of the packages' names and imports, one sentence each.
func checkImports(packages []goPackage) []string {
	var problems []string
	for _, p := range packages {
		name := relative(p.ImportPath)
		problems = append(problems, checkName(name)...)
		here, ok := find(name)
		if !ok {
			problems = append(problems, fmt.Sprintf("package %s has no place in the layers: "+
				"add it to layers() in dev/arch/imports_test.go, as high as what it imports demands", name))
			continue
		}
		for _, imported := range p.Imports {
			if problem := checkImport(name, here, imported); problem != "" {
				problems = append(problems, problem)
			}
		}
		if here.alone {
			problems = append(problems, checkAlone(name, here, slices.Concat(p.TestImports, p.XTestImports))...)
		}
		for _, never := range here.never {
			if slices.Contains(p.Deps, module+"/"+never) {
				problems = append(problems, fmt.Sprintf("package %s must not depend on %s, not even through others: %s; "+
					"go list -deps ./%s shows the path", name, never, here.why, name))
			}
		}
	}
	return problems
}

func checkImport(name string, here place, imported string) string {
	if imported == "testing" && !strings.HasPrefix(name, "internal/") {
		return fmt.Sprintf("package %s imports testing, which would put test flags into its users' binaries: "+
			"move the code that needs it to a _test.go file", name)
	}
	if !ours(imported) {
		return ""
	}
	target := relative(imported)
	if matchAny(here.may, target) {
		return ""
	}
	existing, _ := find(target) // a package without a place is reported as such
	foundationAllowed := !here.alone && (here.layer > 0 || len(here.may) > 0)
	if here.layer > existing.layer && existing.layer > 0 || existing.foundation && foundationAllowed {
		return ""
	}
	return fmt.Sprintf("package %s must not import %s: imports run one way, from higher layers to lower ones; "+
		"move the shared code down, or let %s take an interface or a function", name, target, name)
}

// checkAlone returns the problems of the test imports of a package that is alone.
func checkAlone(name string, here place, imports []string) (problems []string) {
	for _, imported := range imports {
		if ours(imported) && !matchAny(here.may, relative(imported)) {
			problems = append(problems, fmt.Sprintf("the tests of package %s must not import %s: "+
				"move them to the tests of a package that imports both", name, relative(imported)))
		}
	}
	return problems
}

// checkName returns problems of package names that do not describe a purpose.
func checkName(name string) []string {
	var problems []string
	for part := range strings.SplitSeq(name, "/") {
		if slices.Contains([]string{"pkg", "util", "utils", "common", "types", "helpers"}, part) {
			problems = append(problems, fmt.Sprintf("package %s: %q does not describe a purpose; choose a name that does", name, part))
		}
	}
	return problems
}

// find returns the place of a package: its own line, or else the nearest tree that it is in.
func find(name string) (place, bool) {
	table := layers()
	if p, ok := table[name]; ok {
		return p, true
	}
	for dir := name; dir != "." && dir != "/"; dir = path.Dir(dir) {
		if p, ok := table[dir+"/..."]; ok {
			return p, true
		}
	}
	return place{}, false
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, isTree := strings.CutSuffix(pattern, "...")
		return name == pattern || isTree && strings.HasPrefix(name+"/", tree)
	})
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}
