package arch

import (
	"strings"
	"testing"
)

// The checkers themselves: each rule is broken once here, so that a rule that stopped working is noticed.

func TestCheckImports(t *testing.T) {
	t.Parallel()
	pkg := func(name string, imported ...string) goPackage {
		p := goPackage{ImportPath: module + "/" + name}
		for _, i := range imported {
			if i != "testing" && i != "time" {
				i = module + "/" + i
			}
			p.Imports = append(p.Imports, i)
		}
		p.Deps = p.Imports
		return p
	}
	through := pkg("leader", "kube")
	through.Deps = append(through.Deps, module+"/informer")

	for name, tc := range map[string]struct {
		pkg  goPackage
		want string // empty: allowed
	}{
		"a lower layer":                                          {pkg("controller", "informer", "internal/workqueue", "kube", "time"), ""},
		"two layers up":                                          {pkg("internal/wire", "informer"), "internal/wire must not import informer"},
		"the layer above":                                        {pkg("informer", "controller"), "informer must not import controller"},
		"the package beside":                                     {pkg("source", "middleware"), "source must not import middleware"},
		"the leaves do not know each other":                      {pkg("kube", "internal/workqueue"), "kube must not import internal/workqueue"},
		"the core imports an adapter":                            {pkg("controller", "metrics/prometheus"), "controller must not import metrics/prometheus"},
		"an adapter imports the core":                            {pkg("metrics/prometheus", "controller"), ""},
		"leader and kube":                                        {pkg("leader", "kube"), ""},
		"leader and workqueue":                                   {pkg("leader", "internal/workqueue"), "leader must not import internal/workqueue"},
		"leader reaches informer":                                {through, "leader must not depend on informer"},
		"localcluster imports ours":                              {pkg("localcluster", "kube"), "localcluster must not import kube"},
		"the library imports localcluster":                       {pkg("informer", "localcluster"), "informer must not import localcluster"},
		"a command imports localcluster":                         {pkg("localcluster/cmd/localcluster", "localcluster"), ""},
		"the library imports a test package":                     {pkg("internal/store", "dev/contractmatrix"), "internal/store must not import dev/contractmatrix"},
		"the library imports testing":                            {pkg("informer", "testing"), "informer imports testing"},
		"the library imports dev/internal/docs":                  {pkg("internal/store", "dev/internal/docs"), "internal/store must not import dev/internal/docs"},
		"docs and its parts":                                     {pkg("dev/internal/docs/follow", "dev/internal/docs"), ""},
		"docs imports the library":                               {pkg("dev/internal/docs", "kube"), "dev/internal/docs must not import kube"},
		"a package without a place":                              {pkg("gadget"), "package gadget has no place in the layers"},
		"a package below one with a place":                       {pkg("internal/store/gadget"), "package internal/store/gadget has no place in the layers"},
		"the API server in memory imports the library":           {pkg("internal/apiserver", "internal/usercode"), "internal/apiserver must not import internal/usercode"},
		"the API server in memory and its schemas":               {pkg("internal/apiserver", "internal/apiserver/openapi"), ""},
		"a test of the API server in memory imports the library": {goPackage{ImportPath: module + "/internal/apiserver/builtin", XTestImports: []string{module + "/client"}}, "tests of package internal/apiserver/builtin must not import client"},
		"the root package":                                       {goPackage{ImportPath: module, Imports: []string{module + "/tracing"}}, "package . must not import tracing"},
		"an empty name":                                          {pkg("localcluster/cmd/common"), `"common" does not describe a purpose`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectProblem(t, checkImports([]goPackage{tc.pkg}), tc.want)
		})
	}
}

func TestCheckFile(t *testing.T) {
	t.Parallel()
	const sleeping = "import \"time\"\nfunc f() { time.Sleep(1) }\n"
	for name, tc := range map[string]struct {
		file, text string
		want       string // empty: allowed
	}{
		"errors and defaults":       {"a.go", "var ErrX, errY, DefaultZ, defaultZ = 1, 2, 3, 4\n", ""},
		"an assertion":              {"a.go", "var _ error = (*x)(nil)\n", ""},
		"an embedded file":          {"a.go", "//go:embed x.txt\nvar text string\n", ""},
		"embedded files in a group": {"a.go", "var (\n//go:embed x.txt\ntext string\n)\n", ""},
		"a constant":                {"a.go", "const registry = 1\n", ""},
		"a local variable":          {"a.go", "func f() { var x int; _ = x }\n", ""},
		"a method named init":       {"a.go", "func (x) init() {}\n", ""},
		"a global":                  {"a.go", "var registry = 1\n", "package variable registry"},
		"a global in a group":       {"a.go", "var (\nErrX = 1\nregistry = 1\n)\n", "package variable registry"},
		"a name like an error":      {"a.go", "var errand = 1\n", "package variable errand"},
		"a name like a default":     {"a.go", "var defaults = 1\n", "package variable defaults"},
		"a global of a test":        {"a_test.go", "var update = 1\n", ""},
		"init":                      {"a.go", "func init() {}\n", "no init functions"},
		"init in a test":            {"a_test.go", "func init() {}\n", "no init functions"},
		"aliases":                   {"kube/alias.go", "", "no file is for aliases"},
		"a test sleeps":             {"a_test.go", sleeping, "a test sleeps in real time"},
		"a bubble sleeps":           {"a_test.go", "import _ \"testing/synctest\"\n" + sleeping, ""},
		"no Go":                     {"a.go", "func {", "reading the file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectProblem(t, checkFile(tc.file, []byte("package a\n"+tc.text)), tc.want)
		})
	}
}

// expectProblem wants exactly one problem that contains want, or none where want is empty.
func expectProblem(t *testing.T, problems []string, want string) {
	t.Helper()
	if want == "" {
		if len(problems) != 0 {
			t.Errorf("refused, though it is allowed: %q", problems)
		}
		return
	}
	if len(problems) != 1 || !strings.Contains(problems[0], want) {
		t.Errorf("want one problem about %q, got %q", want, problems)
	}
}
