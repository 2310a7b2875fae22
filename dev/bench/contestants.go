package main

// evenKeel is the name of the contestant that the others are compared with.
const evenKeel = "evenkeel"

// evenKeelBest is the name of Even Keel at its best, which the peers at their best are compared with.
const evenKeelBest = evenKeel + "-best"

// controllerRuntime is the name of the peer that the targets are set against.
const controllerRuntime = "controller-runtime"

// contestant is one program with one set of options: one row of the comparison.
type contestant struct {
	// name is used in results, title for people.
	name, title string
	// module is the folder of the program's module.
	module string
	// library is the path of its module.
	library string
	// best is true for the other variant of the module's program: a library at its best, or compat with the engine.
	best bool
	// compat is true for controller-runtime with parts of Even Keel. It has a table of its own.
	compat bool
}

// counterpart returns the name of the contestant of Even Keel that this one is compared with.
func (c contestant) counterpart() string {
	if c.best && !c.compat {
		return evenKeelBest
	}
	return evenKeel
}

func contestants(only []string) []contestant {
	all := []contestant{
		{name: evenKeel, title: "Even Keel", module: "evenkeel", library: "github.com/evenkeel-go/evenkeel"},
		{
			name: evenKeelBest, title: "Even Keel at its best", module: "evenkeel",
			library: "github.com/evenkeel-go/evenkeel", best: true,
		},
		{
			name: controllerRuntime, title: "controller-runtime", module: "controllerruntime",
			library: "sigs.k8s.io/controller-runtime",
		},
		{
			name: controllerRuntime + "-best", title: "controller-runtime at its best", module: "controllerruntime",
			library: "sigs.k8s.io/controller-runtime", best: true,
		},
		{name: "kooper", title: "Kooper", module: "kooper", library: "github.com/spotahome/kooper/v2"},
		{
			name: "kooper-best", title: "Kooper at its best", module: "kooper",
			library: "github.com/spotahome/kooper/v2",
			best:    true,
		},
		{
			name: "compat", title: "controller-runtime on our cache", module: "compat",
			library: "sigs.k8s.io/controller-runtime", compat: true,
		},
		{
			name: "compat-engine", title: "controller-runtime on our engine", module: "compat",
			library: "sigs.k8s.io/controller-runtime", best: true, compat: true,
		},
	}
	if len(only) == 0 {
		return all
	}
	var result []contestant
	for _, c := range all {
		for _, name := range only {
			if c.name == name {
				result = append(result, c)
			}
		}
	}
	return result
}

// modules returns the folders of the programs' modules, each once.
func modules(cs []contestant) []contestant {
	var result []contestant
	for _, c := range cs {
		if !c.best {
			result = append(result, c)
		}
	}
	return result
}
