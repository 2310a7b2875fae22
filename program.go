package evenkeel

import (
	"cmp"
	"context"
	"errors"
	"flag" //nolint:depguard // a Program has the flags of a program
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/manifests"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// metricsPattern is the pattern of the metrics among manager.Config.Handlers.
const metricsPattern = "GET /metrics"

// Program is what surrounds the controllers of an operator: flags, the connection, logs, probes, metrics, Events, a
// lease, webhooks, and signals. Main passes one to the program's function, which
//
//  1. changes Flags and the defaults in Options, if it wants others,
//  2. calls Connect,
//  3. creates controllers, with New or controller.New,
//  4. calls Run.
//
// A Program serves /livez, /readyz, /debug and /metrics at --listen, by default :8080. It runs its controllers while
// it holds a lease of its name, unless --leader-elect is false; everything else runs on every replica. --help lists the
// flags; docs/manager.md describes them.
type Program struct {
	// Flags are the flags of the program. Connect adds those of Options and of the webhooks, and parses them.
	Flags *flag.FlagSet
	// Options are the settings that have flags. Their values before Connect are the defaults of the flags. Listen is
	// ":8080", LeaderElect is true, and LeaseName is the name of the Program: change fields, do not replace the value.
	Options manager.Options
	// Manager has the settings of the manager that have no flags. Run adds its runnables, and the handler of /metrics
	// unless there is one.
	Manager manager.Config
	// Metrics has the settings of the metrics. Registerer is a registry of the Program with the collectors of the Go
	// runtime, the process and the build: programs register their own metrics there. Connect sets Cluster.
	Metrics metrics.Config
	// Webhooks has the settings of the webhook server. Listen has the flag --webhook-listen. The default of TLS is that
	// of Manager without its certificate and its clients, and the default of Certificates is a Secret in the namespace
	// of the lease, and a registration with the name of the Program, so that several installations in one cluster need
	// names of their own. Serve adds Hooks.
	Webhooks webhook.Config

	name        string
	args        []string
	registry    *prometheus.Registry
	cluster     *kube.Cluster
	events      *event.Recorder
	webhookURL  string
	ran         bool
	parsed      map[string]bool    // the names of the flags that Connect has parsed
	caches      []manager.Runnable // that webhooks read
	requests    []manifests.Request
	definitions []Installer
	conversions []*unstructured.Unstructured // that the webhook server serves and registers
	deployment  *deployment                  // of Manifests; otherwise nil
	// Set by Serve and Install, so that a program that does not call them does not link what they need.
	server    func() ([]manager.Runnable, error)
	installer func() ([]manager.Runnable, error)
}

// NewProgram returns a Program with its defaults, for tests and for programs with a main function of their own. args
// are the arguments of the command line without the name of the program. name is a DNS label, such as "web-operator".
func NewProgram(name string, args ...string) *Program {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	return &Program{
		Flags: flags, Options: manager.Options{Listen: ":8080", LeaderElect: true, LeaseName: name},
		Metrics: metrics.Config{Registerer: registry},
		name:    name, args: args, registry: registry,
	}
}

// Main runs a program with the arguments of the process until run returns, and exits the process: with status 0 if run
// returns nil and after --help, otherwise with the status of manager.ExitStatus, after it has printed the error. If the
// first argument is "manifests", it prints Manifests.
func Main(name string, run func(ctx context.Context, p *Program) error) {
	os.Exit(exitStatus(name, os.Args[1:], os.Stderr, run)) //nolint:forbidigo // it is the main function
}

func exitStatus(name string, args []string, out io.Writer, run func(ctx context.Context, p *Program) error) int {
	var err error
	if len(args) > 0 && args[0] == manifestsCommand {
		var text []byte
		if text, err = Manifests(name, run, args[1:]...); err == nil {
			_, err = os.Stdout.Write(text)
		}
	} else {
		p := NewProgram(name, args...)
		p.Flags.Usage = func() {
			fmt.Fprintf(p.Flags.Output(), "Usage of %s:\n", name)
			p.Flags.PrintDefaults()
			fmt.Fprintf(p.Flags.Output(), "\n\"%s %s --help\": how to print what a cluster needs to run the program\n",
				name, manifestsCommand)
		}
		err = run(context.Background(), p) //nolint:forbidigo // it is the main function
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(out, "%s: %v\n", name, err)
	}
	return manager.ExitStatus(err)
}

// Connect parses the flags, and returns the connection to the cluster that they name, with the program's logger,
// metrics and Events. addTypes register further Go types: see kube.Connect. It makes no request.
//
// Errors: mistakes in the flags, the environment and the file of --config; no cluster was found; a second call.
func (p *Program) Connect(addTypes ...func(*runtime.Scheme) error) (*kube.Cluster, error) {
	if p.cluster != nil {
		return nil, errors.New("connect: the program is connected already")
	}
	if problems := validation.IsDNS1123Label(p.name); len(problems) > 0 {
		return nil, fmt.Errorf("connect: the name of the program is %q: %s", p.name, strings.Join(problems, "; "))
	}
	if p.parsed != nil {
		return nil, errors.New("connect: an earlier call has failed: create another Program")
	}
	p.parsed = map[string]bool{}
	p.Flags.StringVar(&p.Webhooks.Listen, "webhook-listen", p.Webhooks.Listen, "`address` of the webhook server, for "+
		"example \":9443\"; no server if it is empty")
	p.Flags.StringVar(&p.webhookURL, "webhook-url", "", "`URL` at which the API server reaches the webhook server; "+
		"https://NAME.NAMESPACE.svc is a Service; by default that of the program's name in the namespace of the lease")
	parse, connect := p.Options.Parse, p.Options.Connect
	if p.deployment != nil {
		parse, connect = p.deployment.parser(p), p.deployment.connector(p)
	}
	if err := parse(p.Flags, p.args); err != nil {
		return nil, err
	}
	p.Flags.VisitAll(func(f *flag.Flag) { p.parsed[f.Name] = true })
	cluster, err := connect(addTypes...)
	if err != nil {
		return nil, err
	}
	p.Metrics.Cluster = cluster
	if _, err := metrics.New(p.Metrics); err != nil {
		return nil, err
	}
	if p.events, err = event.New(event.Config{Cluster: cluster, Controller: p.name}); err != nil {
		return nil, err
	}
	p.cluster = cluster
	if p.deployment != nil {
		p.deployment.connected(cluster)
	}
	return cluster, nil
}

// Events writes Events about objects. It is nil before Connect.
func (p *Program) Events() *event.Recorder {
	if p.deployment != nil {
		p.deployment.requireEvents(p)
	}
	return p.events
}

// Permit declares requests of the program's own, for Manifests: verbs, such as "get", for a resource, such as
// corev1.Resource("secrets") or corev1.Resource("pods/eviction"). These are requests of handlers and Runners that
// informers, children, finalizers and the status do not make by themselves, also those for the same kinds. objects
// limits them to names, to namespaces, or to both. A key without a namespace, and no objects at all, mean the
// namespaces of the cluster (see kube.Cluster.SetNamespaces), or all of them; kube.AllNamespaces means all, also with
// --namespaces. A name limits create to applies: other creates need a call without names. With --read-only, writes are
// not printed. With a fence, the API server rejects the writes of standbys. Manifests returns mistakes in the
// arguments. Call it before Run; a program that runs ignores it.
func (p *Program) Permit(resource schema.GroupResource, verbs []string, objects ...kube.Key) {
	request := manifests.Request{Resource: resource, Verbs: verbs}
	for _, object := range objects {
		request.Objects = append(request.Objects, types.NamespacedName(object))
	}
	p.requests = append(p.requests, request)
}

// served is an Operator.
type served interface {
	serveIn(p *Program)
}

// Run runs the program until ctx ends, or until SIGTERM or SIGINT: the runners (operators, controllers and others) on
// the replica that holds the lease, and Manager.Runnables in their groups. It serves the webhooks of operators, if
// --webhook-listen is set, on every replica. See manager.Manager.Run for the result.
func (p *Program) Run(ctx context.Context, runners ...manager.Runner) error {
	m, err := p.manager(runners)
	if p.deployment != nil {
		return p.deployment.complete(p, m, err)
	}
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// manager returns the manager of Run.
func (p *Program) manager(runners []manager.Runner) (*manager.Manager, error) {
	if p.cluster == nil {
		return nil, errors.New("run the program: call Connect first")
	}
	if p.ran {
		return nil, errors.New("run the program: it has run already: create another Program for another Run")
	}
	p.ran = true
	if err := p.checkFlags(); err != nil {
		return nil, err
	}
	if p.deployment != nil {
		if err := p.deployment.prepare(p); err != nil {
			return nil, err
		}
	}
	config := p.Manager
	config.Runnables = append([]manager.Runnable{
		// Events are sent until everything else has ended.
		{Name: "events", Runner: p.events, Group: manager.Servers},
	}, config.Runnables...)
	for _, runner := range runners {
		config.Runnables = append(config.Runnables, manager.Runnable{Runner: runner})
		if operator, ok := runner.(served); ok && !usercode.IsNil(runner) {
			operator.serveIn(p)
		}
	}
	if p.server == nil && (len(p.Webhooks.Hooks) > 0 || p.webhookURL != "" || p.Webhooks.Listen != "") {
		return nil, errors.New("run the program: --webhook-listen, --webhook-url or Webhooks.Hooks is set, and no " +
			"webhook was passed to Serve, or is one of an operator that Run got")
	}
	for _, open := range []func() ([]manager.Runnable, error){p.server, p.installer} {
		if open == nil {
			continue
		}
		more, err := open()
		if err != nil {
			return nil, err
		}
		config.Runnables = append(config.Runnables, more...)
	}
	config.Runnables = append(config.Runnables, p.caches...)
	p.serveMetrics(&config)
	return p.Options.New(p.cluster, config)
}

// serveMetrics adds the handler of /metrics, if there is a server and no such handler.
func (p *Program) serveMetrics(config *manager.Config) {
	hasServer := config.Listener != nil || cmp.Or(config.Listen, p.Options.Listen) != ""
	if !hasServer || config.Handlers[metricsPattern] != nil || config.Handlers["/metrics"] != nil {
		return
	}
	gatherer := prometheus.Gatherers{p.registry}
	if other, ok := p.Metrics.Registerer.(prometheus.Gatherer); ok && p.Metrics.Registerer != p.registry {
		gatherer = append(gatherer, other)
	}
	config.Handlers = maps.Clone(config.Handlers)
	if config.Handlers == nil {
		config.Handlers = map[string]http.Handler{}
	}
	// Exemplars need OpenMetrics.
	config.Handlers[metricsPattern] = promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// checkFlags returns an error if flags were added after they were parsed.
func (p *Program) checkFlags() error {
	var late []string
	p.Flags.VisitAll(func(f *flag.Flag) {
		if !p.parsed[f.Name] {
			late = append(late, "--"+f.Name)
		}
	})
	if len(late) > 0 {
		return fmt.Errorf("run the program: the flags %s were added after Connect, which parses the flags: add them "+
			"before", strings.Join(late, ", "))
	}
	return nil
}
