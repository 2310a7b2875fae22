package controllerruntime

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The packages of controller-runtime that programs import.
const importedPackages = `
	builder cache cache/informertest certwatcher client client/apiutil client/config client/fake client/interceptor
	cluster config controller controller/controllerutil controller/priorityqueue conversion envtest event finalizer
	handler healthz leaderelection log manager manager/signals metrics metrics/filters metrics/server predicate
	reconcile recorder scheme source webhook webhook/admission webhook/authentication webhook/conversion`

// rareNames are what programs rarely name: types that they get from a function, and parts for other libraries.
const rareNames = `
	AddOpts AddsKey AdmissionDecoder AdmissionHandler APIServer Arg Arguments Authenticated AuthenticatedUser Authn
	BaseContextFunc CheckHandler ClientBuilder Converter DefaultBinaryAssetsIndexURL DefaultBindAddress
	DefaulterRemoveUnknownOrOmitableFields DefaultKubeAPIServerFlags DefaultLogConstructor DefaultPort DefaultServer
	DepthKey DisableReadYourWritesConsistency EmptyArguments ErrResourceDiscoveryFailed Etcd Filter Finalizers
	HandlerFunc JSONPatchOp KubeAPIWarningLogger KubeconfigFlagName ListenAddr LongestRunningProcessorKey
	NewContextWithRequest NewHubSpokeConverter NewRegistry NewResourceLock NewSpokeConverter NullLogSink Opt Opts
	PartialImplementationError Provider QueueLatencyKey RegisterRESTClientMetrics
	RegisterRESTClientMetricsWithOptions Response RESTClientMetric RetriesKey ReviewResponse Server
	SetupEnvtestDefaultBinaryAssetsDirectory StartTimeout StopTimeout SubResourceClientConstructor SubResourceReader
	SubResourceWriter Unauthenticated UnfinishedWorkKey User WaitForWebhooks Webhook WebhookBuilder WorkDurationKey
	WorkQueueSubsystem`

// The page for users of controller-runtime has every name of its packages, except generic variants, types of options and
// rare names. The names of a new version have to be added to the page.
func TestMigrationPageHasNamesOfControllerRuntime(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/migrating/controller-runtime.md")
	if err != nil {
		t.Fatal(err)
	}
	known := append(strings.Fields(rareNames), regexp.MustCompile(`\w+`).FindAllString(string(page), -1)...)
	rest := strings.Fields(rareNames)
	variants := regexp.MustCompile(`^(New)?Typed|^OperationResult|^Metric|(Option|Options|Input|Opt)$`)
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/controller-runtime")
	root, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for folder := range strings.FieldsSeq(importedPackages) {
		names := exportedNames(t, filepath.Join(strings.TrimSpace(string(root)), "pkg", filepath.FromSlash(folder)))
		if len(names) == 0 {
			t.Errorf("package %s has no names", folder)
		}
		for _, name := range names {
			rest = slices.DeleteFunc(rest, func(rare string) bool { return rare == name })
			if !slices.Contains(known, name) && !variants.MatchString(name) {
				t.Errorf("docs/migrating/controller-runtime.md lacks %s of package %s", name, folder)
			}
		}
	}
	if len(rest) > 0 {
		t.Errorf("controller-runtime has no %v: remove them from rareNames", rest)
	}
}

// exportedNames returns the exported functions, types, variables and constants of the package in a folder.
func exportedNames(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				if declaration.Recv == nil {
					names = append(names, declaration.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range declaration.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names = append(names, spec.Name.Name)
					case *ast.ValueSpec:
						for _, value := range spec.Names {
							names = append(names, value.Name)
						}
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
}
