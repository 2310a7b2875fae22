package evenkeel

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"flag" //nolint:depguard // a Program has the flags of a program
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/httpserver"
	"github.com/evenkeel-go/evenkeel/internal/manifests"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// alerts are the rules of the PrometheusRule, on the metrics of a Program.
//
//go:embed docs/dashboards/alerts.yaml
var alerts string

// manifestsCommand is the first argument with which Main prints Manifests.
const manifestsCommand = "manifests"

// Manifests returns the objects with which a cluster runs the program, as YAML: its namespace, the definitions of
// Install, a service account with RBAC, a Deployment, and a Service. Main prints them for the arguments "manifests
// --image=IMAGE --namespace=NAMESPACE -- ARGUMENTS"; ARGUMENTS become those of the Deployment. The environment is
// ignored. Further flags of the command add a NetworkPolicy, a ServiceMonitor or alerts; --help lists them.
//
// It calls run with a Program that makes no request, and whose Run returns when everything is created and cancels the
// context of run. RBAC has what the parts of this program, with these ARGUMENTS, do: informers in their namespaces,
// children, finalizers and the status in the namespaces of the controllers that have them, Events, leases, webhooks,
// which the program registers when it serves them, and definitions, which it may not create, because they exist. What
// else handlers do is declared by Program.Permit.
//
// Errors: those of run, also of requests that it makes before Run, and of Run; run has not called Program.Run; invalid
// flags; settings that need files; addresses that other hosts cannot reach; kinds without a known resource.
func Manifests(name string, run func(ctx context.Context, p *Program) error, args ...string) ([]byte, error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it is the main function
	defer cancel()
	d := &deployment{recorded: cancel, err: errors.New("the program has not called Program.Run")}
	programArgs, err := d.parse(name, args)
	if err != nil {
		return nil, err
	}
	p := NewProgram(name, programArgs...)
	p.deployment = d
	err = run(ctx, p)
	if d.err == nil && errors.Is(err, context.Canceled) { // by recorded
		err = nil
	}
	if err := cmp.Or(err, d.err); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	text, err := d.objects.YAML()
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	return text, nil
}

// deployment is what Manifests finds out about a Program.
type deployment struct {
	objects  manifests.Program
	alerts   bool   // whether to print them
	recorded func() // is called at the end of Run
	err      error  // the result of Run
}

// parse reads the flags of the command, and returns the arguments of the program.
func (d *deployment) parse(name string, args []string) ([]string, error) {
	o := &d.objects
	flags := flag.NewFlagSet(name+" "+manifestsCommand, flag.ContinueOnError)
	flags.StringVar(&o.Image, "image", "", "`image` of the program; required")
	flags.StringVar(&o.Namespace, "namespace", "", "`namespace` in which the program runs; required")
	flags.BoolVar(&o.NetworkPolicy, "network-policy", false, "add a NetworkPolicy that admits connections to the "+
		"program's ports only")
	flags.BoolVar(&o.ServiceMonitor, "service-monitor", false, "add a ServiceMonitor for the Prometheus operator")
	flags.BoolVar(&d.alerts, "alerts", false, "add a PrometheusRule with docs/dashboards/alerts.yaml for the "+
		"Prometheus operator; equal alerts of several programs are one in Alertmanager")
	flags.Func("crd", "YAML `file` with CustomResourceDefinitions of other kinds that the program uses; may be "+
		"repeated", func(path string) error {
		text, err := os.ReadFile(path) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		return o.AddOtherDefinitions(text)
	})
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: %[1]s manifests --image=IMAGE --namespace=NAMESPACE [flags] "+
			"[-- ARGUMENTS]\n\nIt prints the objects with which a cluster runs %[1]s with ARGUMENTS, for kubectl "+
			"apply -f -. %[1]s --help lists the arguments.\n\n", name)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for _, arg := range flags.Args() {
		if !utf8.ValidString(arg) {
			return nil, fmt.Errorf("manifests: the argument %q is not UTF-8, which YAML cannot have", arg)
		}
	}
	if problems := validation.IsDNS1123Label(o.Namespace); o.Image == "" || len(problems) > 0 {
		return nil, fmt.Errorf("manifests: --image is %q and --namespace is %q: both are required, and flags of the "+
			"program follow after --", o.Image, o.Namespace)
	}
	o.Name, o.Args = name, flags.Args()
	return flags.Args(), nil
}

// parser returns Options.Parse without the environment and files, which the Deployment does not have.
func (d *deployment) parser(p *Program) func(*flag.FlagSet, []string) error {
	return func(flags *flag.FlagSet, args []string) error {
		p.Options.AddFlags(flags)
		flags.SetOutput(io.Discard)
		if err := flags.Parse(args); err != nil {
			if flags.SetOutput(nil); errors.Is(err, flag.ErrHelp) {
				flags.PrintDefaults()
			}
			return err
		}
		if flags.NArg() > 0 {
			return fmt.Errorf("the argument %q is not a flag", flags.Arg(0))
		}
		var errs []error
		for _, name := range []string{
			"config", "kubeconfig", "context", "as", "tls-cert-file", "tls-private-key-file",
		} {
			if value := flags.Lookup(name).Value.String(); value != "" {
				errs = append(errs, fmt.Errorf("--%s is %q: the Deployment has no files and works as its service "+
					"account: pass other settings as flags, use --probe-listen for TLS without files, or add this "+
					"flag and a volume to the printed Deployment", name, value))
			}
		}
		return errors.Join(append(errs, p.Options.Complete(flags, func(string) bool { return true }))...)
	}
}

// connector returns Options.Connect without a cluster.
func (d *deployment) connector(p *Program) func(...func(*runtime.Scheme) error) (*kube.Cluster, error) {
	return func(addTypes ...func(*runtime.Scheme) error) (*kube.Cluster, error) {
		config := &rest.Config{Host: "https://no-cluster.invalid", Transport: noRequests{}}
		cluster, err := kube.Connect(config, addTypes...)
		if err == nil {
			err = cluster.SetNamespaces(p.Options.Namespaces...)
		}
		if err != nil {
			return nil, err
		}
		cluster.SetLogger(p.Options.Logger())
		explicit := false
		p.Flags.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "lease-namespace" })
		if !explicit {
			if p.Options.LeaseNamespace != "" && p.Options.LeaseNamespace != d.objects.Namespace {
				d.objects.Args = append([]string{"--lease-namespace=" + d.objects.Namespace}, d.objects.Args...)
			}
			p.Options.LeaseNamespace = d.objects.Namespace
		}
		return cluster, nil
	}
}

// noRequests is the transport of a program that only prints.
type noRequests struct{}

// RoundTrip implements http.RoundTripper.
func (noRequests) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s %s: the program prints its manifests, and has no cluster: make requests in a Runner",
		req.Method, req.URL.Path)
}

// connected records what parts need that are created from now on: the program may not use its recorder of Events.
func (*deployment) connected(cluster *kube.Cluster) {
	apiobject.ObserversOf(cluster).RecordPermissions()
}

// requireEvents records that the program writes Events of its own.
func (*deployment) requireEvents(p *Program) {
	apiobject.ObserversOf(p.cluster).Require(apiobject.Permission{
		Kind: eventsv1.SchemeGroupVersion.WithKind("Event"), Verbs: []string{"create", "patch"},
	})
}

// prepare changes the program so that it needs nothing of the Pod.
func (*deployment) prepare(p *Program) error {
	if p.Webhooks.CertFile != "" || p.Webhooks.KeyFile != "" {
		return errors.New("Webhooks.CertFile or KeyFile is set, and the Deployment has no files: leave them empty " +
			"for certificates in a Secret, which the program keeps")
	}
	return nil
}

// complete records the program, whose manager New has returned, and ends the context of the function of Manifests.
func (d *deployment) complete(p *Program, m *manager.Manager, err error) error {
	if err == nil {
		err = d.record(p, m.Config())
	}
	d.err = err
	d.recorded()
	return err
}

func (d *deployment) record(p *Program, config manager.Config) error {
	o := &d.objects
	o.Scheme, o.Authorize, o.LeaderElect = "HTTP", config.AuthorizeWith != nil, config.LeaderElection != nil
	if config.TLS != nil {
		o.Scheme = "HTTPS"
	}
	o.GracePeriod = max(30, int(math.Ceil(config.ShutdownTimeout.Seconds()))+1)
	observers := apiobject.ObserversOf(p.cluster)
	o.Permissions, o.ReadOnly = observers.Permissions(), p.Options.ReadOnly
	o.Requests, o.Namespaces = p.requests, p.cluster.Namespaces()
	if len(p.definitions) > 0 {
		if err := o.AddDefinitions(p.definitions[0]); err != nil {
			return err
		}
	}
	for _, retriever := range observers.OwnRetrievers() {
		if resource := o.Resource(retriever.Kind); !o.Permits("list", resource) || !o.Permits("watch", resource) {
			p.cluster.Logger().Warn("what the Retriever of a controller requests is not among the printed permissions",
				"controller", retriever.Controller, "hint", "call Program.Permit for list and watch, and, if its kind "+
					"is not known before it lists, for what the controller does with its objects")
		}
	}
	if err := d.addPorts(p, config); err != nil {
		return err
	}
	return errors.Join(d.addFence(), d.addAlerts(p))
}

// addAlerts records the alerts, if they are printed.
func (d *deployment) addAlerts(p *Program) error {
	if !d.alerts {
		return nil
	}
	if namespace := p.Metrics.Namespace; namespace != "" && namespace != "evenkeel" {
		return fmt.Errorf("--alerts: Metrics.Namespace is %q: the alerts are on metrics with the default prefix",
			namespace)
	}
	if !p.Metrics.CompatibleNames {
		p.cluster.Logger().Warn("alerts never fire without Program.Metrics.CompatibleNames", "alerts",
			"EvenkeelNoLeader, EvenkeelTwoLeaders, EvenkeelRequestsFail")
	}
	_, d.objects.Alerts, _ = strings.Cut(alerts, "\n") // without the comment
	return nil
}

// addFence replaces the permissions of the lease with a fence by the objects of the fence, which have them.
func (d *deployment) addFence() error {
	o := &d.objects
	hasFence := func(lease apiobject.Permission) bool { return lease.Fence }
	i := slices.IndexFunc(o.Permissions, hasFence)
	if i < 0 {
		return nil
	}
	lease := kube.Key{Namespace: o.Permissions[i].Namespaces[0], Name: o.Permissions[i].Names[0]}
	policy, err := leader.FenceManifest(lease, kube.Key{Namespace: o.Namespace, Name: o.Name}, d.exemptions()...)
	o.Fence, o.Permissions = string(policy), slices.DeleteFunc(o.Permissions, hasFence)
	return err
}

// exemptions are what replicas write that do not hold the lease.
func (d *deployment) exemptions() (exempt []leader.Exemption) {
	for _, permission := range d.objects.Permissions {
		if !permission.Standby {
			continue
		}
		e := leader.Exemption{Resource: d.objects.Resource(permission.Kind), Names: permission.Names}
		same := func(other leader.Exemption) bool {
			return other.Resource == e.Resource && slices.Equal(other.Names, e.Names)
		}
		if len(e.Names) > 0 && !slices.ContainsFunc(exempt, same) {
			exempt = append(exempt, e)
		}
	}
	return exempt
}

// addPorts records the ports of the servers.
func (d *deployment) addPorts(p *Program, config manager.Config) error {
	o := &d.objects
	add := func(name, addresses string, listener net.Listener) error {
		if listener != nil {
			addresses = listener.Addr().String()
		}
		if addresses == "" {
			return nil
		}
		numbers := portsOf(addresses)
		if len(numbers) == 0 {
			return fmt.Errorf("the server %s listens at %s, which has no port that other hosts can reach: set an "+
				"address such as \":8080\"", name, addresses)
		}
		for i, number := range numbers {
			port := manifests.Port{Name: name, Number: number, Service: number}
			if i > 0 {
				port.Name += "-" + strconv.Itoa(i+1)
			} else if name == "webhooks" {
				port.Service = 443
			}
			for _, other := range o.Ports {
				if other.Service == port.Service {
					return fmt.Errorf("the servers %s and %s have the port %d of the Service: choose another address",
						other.Name, port.Name, port.Service)
				}
			}
			o.Ports = append(o.Ports, port)
		}
		return nil
	}
	err := errors.Join(add("http", config.Listen, config.Listener), add("probes", config.ProbeListen, nil))
	if p.server != nil {
		err = errors.Join(err, add("webhooks", p.Webhooks.Listen, p.Webhooks.Listener))
	}
	switch hasHTTP := config.Listen != "" || config.Listener != nil; {
	case o.ServiceMonitor && !hasHTTP:
		err = errors.Join(err, errors.New("--service-monitor needs --listen"))
	case config.ProbeListen != "":
		o.Probes, o.ProbeScheme = "probes", "HTTP"
	case hasHTTP && wantsClientCertificates(config):
		err = errors.Join(err, errors.New("the TLS settings require certificates of clients, and the kubelet has "+
			"none: set --probe-listen for the probes"))
	case hasHTTP:
		o.Probes, o.ProbeScheme = "http", o.Scheme
	}
	if problems := validation.IsDNS1035Label(o.Name); len(o.Ports) > 0 && len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("the name of the program is also that of its Service: %s",
			strings.Join(problems, "; ")))
	}
	return err
}

// wantsClientCertificates reports whether a server rejects clients without a certificate.
func wantsClientCertificates(config manager.Config) bool {
	settings := &tls.Config{MinVersion: tls.VersionTLS13}
	if config.TLS != nil {
		config.TLS(settings)
	}
	return settings.ClientAuth == tls.RequireAnyClientCert || settings.ClientAuth == tls.RequireAndVerifyClientCert
}

// portsOf returns the ports that other hosts can reach.
func portsOf(addresses string) (ports []int) {
	for _, address := range httpserver.Addresses(addresses) {
		host, port, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || host == "localhost" || ip != nil && ip.IsLoopback() {
			continue
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err == nil && number > 0 && !slices.Contains(ports, int(number)) {
			ports = append(ports, int(number))
		}
	}
	return ports
}
