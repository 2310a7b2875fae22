package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/httpserver"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

// DefaultShutdownTimeout is 1 s less than a Pod's default terminationGracePeriodSeconds. Nine tenths of it are more
// than the default drain timeout of controllers.
const DefaultShutdownTimeout = 29 * time.Second

// Config configures a Manager. Its zero value is valid.
type Config struct {
	// Runnables are the first runnables; see also Manager.Add.
	Runnables []Runnable

	// LeaderElection is the lease under which the group LeaderOnly runs. Default: nil, no lease: LeaderOnly starts when
	// Always is ready.
	LeaderElection *leader.Config

	// Listen is the address of the HTTP server, for example ":8080", or several with commas. Default: no HTTP server,
	// unless Listener is set.
	Listen string
	// Listener is used in place of Listen. The manager closes it when it stops.
	Listener net.Listener
	// ProbeListen is the address of a second HTTP server, or several with commas. It serves only /livez, /healthz and
	// /readyz, without TLS. Listen or Listener then serves only the rest, with TLS. Default: none.
	ProbeListen string
	// TLS changes the settings of connections, for example MinVersion, CipherSuites, or ClientAuth and ClientCAs, which
	// also apply to probes unless ProbeListen is set. The server uses TLS if TLS or Options.CertFile sets a
	// certificate, or if ProbeListen is set: its default is then a self-signed certificate, which clients must accept
	// without verification. Default: TLS 1.3.
	TLS func(*tls.Config)
	// Handlers are served beside /livez, /healthz and /readyz, by their pattern for http.ServeMux, for example
	// "GET /metrics". One for /healthz replaces that of the manager.
	Handlers map[string]http.Handler
	// AuthorizeWith protects Handlers and /debug: a request needs a bearer token that this cluster accepts,
	// and its user must be allowed the method and the path (nonResourceURLs in RBAC). Results are cached for 1 min. The
	// program needs the ClusterRole system:auth-delegator. It requires TLS, unless Listen has only
	// loopback addresses. Default: nil: Handlers are served to everybody, and /debug only to this host.
	AuthorizeWith *kube.Cluster
	// Pprof serves CPU profiles, execution traces and the profiles of runtime/pprof below /debug/pprof. Default: false.
	Pprof bool
	// Liveness and Readiness are further checks of /livez and /readyz, by name. A nil error means success. Each
	// runnable and the lease already have a check in /readyz. A check that does not return within 5 s has failed.
	Liveness, Readiness map[string]func() error

	// IgnoreSignals disables the handling of SIGTERM and SIGINT, for tests and for programs that handle them. By
	// default the first signal has the effect of the end of Run's context, and the second one exits the process at once
	// with the status 128 plus the signal's number.
	IgnoreSignals bool
	// ShutdownTimeout is the maximum time from the begin of the shutdown until Run returns. Groups drain within the
	// first nine tenths of it. Then the contexts of all remaining runnables are cancelled, and they have the last
	// tenth. It must be less than the Pod's terminationGracePeriodSeconds. Default: 29 s.
	ShutdownTimeout time.Duration

	// Logger receives starts and stops at info level, restarts at warning level and failures at error level. It is also
	// that of controller.LoggerFrom in the runnables. Default: that of the Cluster of LeaderElection or AuthorizeWith;
	// without them slog.Default(), at the time of New.
	Logger *slog.Logger

	// Of Options. The files are read again when they change; while they are not valid, the previous certificate stays
	// in use.
	certFile, keyFile string

	tls *tls.Config // nil without TLS; set by secure

	// Replaced by tests.
	probes net.Listener // in addition to ProbeListen
	exit   func(status int)
	notify func(chan<- os.Signal) (stop func())
}

// Group determines when a Runnable runs. The constants are in stop order.
type Group int

// The groups.
const (
	// LeaderOnly runs while this process holds the lease, or always if the manager has no lease. It is the default,
	// because work that two replicas do at once is often wrong.
	LeaderOnly Group = iota
	// Always runs on every replica.
	Always
	// Caches runs on every replica, and is ready before Always starts.
	Caches
	// Servers starts first and stops last, so that probes, metrics and webhooks are served in between.
	Servers
)

// String returns the group's name.
func (g Group) String() string {
	names := []string{"leader only", "always", "caches", "servers"}
	if g < 0 || int(g) >= len(names) {
		return fmt.Sprintf("group %d", int(g))
	}
	return names[g]
}

// FailurePolicy determines what follows when a Runnable returns an error or panics before it was stopped.
type FailurePolicy int

// The policies.
const (
	// EndProcess stops all runnables, and Run returns the error. It is the default.
	EndProcess FailurePolicy = iota
	// Restart starts the Runnable again after 1 s. The delay doubles with each failure up to 1 min, and is 1 s again
	// after a failure of a Runnable that ran for more than 1 min. Until then the manager is not ready.
	Restart
	// Continue logs the error. The Runnable ends, the others continue, and the manager is ready without it.
	Continue
)

// Runner is a part of a program. Run must return when ctx ends. It may have the other methods of Component, or some of
// them.
type Runner interface {
	Run(ctx context.Context) error
}

// Component is a Runner with all methods that a manager uses, such as a controller, an operator or an informer. A type
// that wraps one embeds it, and so keeps them. The manager logs whether a wrapper lacks Ready or Debug.
type Component interface {
	Runner
	// Name is the default of Runnable.Name.
	Name() string
	// Ready returns why the Runner is not ready, or nil. It must not block.
	Ready() error
	// Debug returns a value for encoding/json that /debug serves, for key "" the state of the Runner.
	Debug(key string) (any, error)
}

// The methods of Component that a Runner may lack.
type (
	named    interface{ Name() string }
	readied  interface{ Ready() error }
	debugged interface {
		Debug(key string) (any, error)
	}
)

// RunFunc is a function as a Runner.
type RunFunc func(ctx context.Context) error

// Run calls f.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// Runnable is a Runner with the rules by which a Manager runs it.
type Runnable struct {
	// Name identifies the Runnable in logs, errors and /readyz. It must be unique in the manager. Default: the Name of
	// the Runner.
	Name string
	// Runner is required.
	Runner Runner
	// Group determines when it runs. Default: LeaderOnly.
	Group Group
	// OnFailure determines what follows when it fails. Default: EndProcess.
	OnFailure FailurePolicy
	// Task marks work that ends, for example crd.Ensure: the other runnables of its group start when the Run of all
	// tasks has returned nil, so the program is not ready before. A task that fails with the policy Continue does not
	// hold them up. A task of LeaderOnly runs in each term. A task that is added while its group runs starts at once.
	// A crd.Ensure that waits for controllers to remove finalizers lets the others start before. Default: false.
	Task bool
	// DrainTime is the time within which Run must return after the end of its context. Afterwards the manager no
	// longer waits for it, and reports it as an error. It must not exceed the manager's ShutdownTimeout, its default.
	DrainTime time.Duration
}

// withDefaults returns the Runnable with the defaults of its zero fields, given the manager's ShutdownTimeout.
func (r Runnable) withDefaults(shutdownTimeout time.Duration) Runnable {
	if runner, ok := r.Runner.(named); ok && r.Name == "" && !usercode.IsNil(r.Runner) {
		r.Name = runner.Name()
	}
	r.DrainTime = cmp.Or(r.DrainTime, shutdownTimeout)
	return r
}

// reserved are the names of checks of the manager itself.
func reserved() []string { return []string{checkServer, checkProbes, checkLease, checkShutdown} }

func (r Runnable) validate(shutdownTimeout time.Duration) error {
	var mistakes usercode.Mistakes
	if r.Name == "" {
		mistakes.Addf("Name is required")
	} else if slices.Contains(reserved(), r.Name) {
		mistakes.Addf("Name %q is reserved for the manager", r.Name)
	}
	mistakes.AddIf(usercode.IsNil(r.Runner), "Runner is required")
	mistakes.AddIf(r.Group < LeaderOnly || r.Group > Servers, "Group is %d: it must be one of the "+
		"constants", int(r.Group))
	mistakes.AddIf(r.OnFailure < EndProcess || r.OnFailure > Continue, "OnFailure is %d: it must be one of the "+
		"constants", int(r.OnFailure))
	mistakes.AddIf(r.DrainTime < 0, "DrainTime is %s: it must not be negative (0 means no limit of its "+
		"own)", r.DrainTime)
	mistakes.AddIf(r.DrainTime > shutdownTimeout && shutdownTimeout > 0, "DrainTime is %s: it must not exceed the "+
		"manager's ShutdownTimeout, %s", r.DrainTime, shutdownTimeout)
	return mistakes.Err()
}

func (c Config) withDefaults() Config {
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	cluster := c.AuthorizeWith
	if c.LeaderElection != nil {
		cluster = cmp.Or(c.LeaderElection.Cluster, cluster)
	}
	c.Logger = cmp.Or(c.Logger, cluster.Logger())
	if c.exit == nil {
		c.exit = os.Exit //nolint:forbidigo // only the second signal
	}
	if c.notify == nil {
		c.notify = notifySignals
	}
	return c
}

// hasServer reports whether there is another HTTP server than that of the probes.
func (c Config) hasServer() bool { return c.Listen != "" || c.Listener != nil }

// secure sets the settings of TLS, or none if the server has no certificate.
func (c *Config) secure() error {
	settings, err := httpserver.Settings(c.TLS)
	hasOwn := settings.GetCertificate != nil || settings.GetConfigForClient != nil || len(settings.Certificates) > 0
	var mistakes usercode.Mistakes
	mistakes.Join(err)
	hasFiles := c.certFile != "" || c.keyFile != ""
	mistakes.AddIf(hasFiles && (c.certFile == "" || c.keyFile == ""), "Options.CertFile (--tls-cert-file) is %q "+
		"and Options.KeyFile (--tls-private-key-file) is %q: set both or none", c.certFile, c.keyFile)
	mistakes.AddIf(hasFiles && hasOwn, "TLS sets a certificate, and Options.CertFile (--tls-cert-file) is set: use one")
	switch {
	case !c.hasServer():
		settings = nil
	case hasOwn || hasFiles:
	case c.ProbeListen != "":
		own, err := certificates.OfProcess("localhost", "127.0.0.1")
		mistakes.Join(err)
		settings.Certificates = []tls.Certificate{own}
	default:
		mistakes.AddIf(settings.ClientAuth != tls.NoClientCert, "TLS sets ClientAuth, and the server has no "+
			"certificate: set Options.CertFile (--tls-cert-file) or ProbeListen")
		settings = nil
	}
	c.tls = settings
	return mistakes.Err()
}

// isLoopback reports whether only this host can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func (c Config) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.ShutdownTimeout < 0, "ShutdownTimeout is %s: it must not be negative (0 means "+
		"%s)", c.ShutdownTimeout, DefaultShutdownTimeout)
	mistakes.AddIf(c.Listen != "" && c.Listener != nil, "Listen and Listener are both set: choose one of them")
	mistakes.AddIf(!c.hasServer() && (c.AuthorizeWith != nil || c.Pprof || len(c.Handlers) > 0),
		"AuthorizeWith, Pprof and Handlers need Listen or Listener")
	addresses := httpserver.Addresses(c.Listen)
	for _, address := range httpserver.Addresses(c.ProbeListen) {
		mistakes.AddIf(slices.Contains(addresses, address) && !strings.HasSuffix(address, ":0"), "Listen and "+
			"ProbeListen have the address %s: choose another one", address)
	}
	if plain, ok := c.Listener.(*net.TCPListener); ok { // others may have TLS
		addresses = append(addresses, plain.Addr().String())
	}
	for _, address := range addresses {
		mistakes.AddIf(c.AuthorizeWith != nil && c.tls == nil && !isLoopback(address), "AuthorizeWith needs a "+
			"certificate (Options.CertFile, --tls-cert-file, or TLS), or ProbeListen for one of this process: "+
			"otherwise clients send their tokens to %s without TLS", address)
	}
	mistakes.AddIf(!c.hasServer() && c.ProbeListen == "" && len(c.Liveness)+len(c.Readiness) > 0, "Liveness and "+
		"Readiness need Listen, Listener or ProbeListen")
	checkNames := func(field string, checks map[string]func() error) {
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			mistakes.AddIf(name == "" || checks[name] == nil || slices.Contains(reserved(), name), "%s[%q]: the name "+
				"must not be empty or one of the manager's, and the check must not be nil", field, name)
		}
	}
	checkNames("Liveness", c.Liveness)
	checkNames("Readiness", c.Readiness)
	return mistakes.Err()
}
