package manager

import (
	"cmp"
	"flag" //nolint:depguard // Options has the flags of a program
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

// Options are the settings of a program that the people who run it choose. Each has a flag, an environment variable and
// a field in the file of the flag --config. The values that Options has before Parse are the defaults of the program.
//
// A flag takes precedence over its environment variable, that over the file, and that over the default. The name of the
// variable is that of the flag in upper case after EnvPrefix: OPERATOR_LOG_LEVEL for --log-level. The file is YAML or
// JSON, and its fields have the names of the flags: "log-level: debug". All of this also applies to the flags of the
// program in the same flag.FlagSet.
type Options struct {
	// EnvPrefix is the begin of the names of the environment variables. It has no flag. Default: OPERATOR.
	EnvPrefix string

	// ConfigFile is the file with further settings. Default: none.
	ConfigFile string

	// Kubeconfig and Context select the cluster: see RESTConfig. The environment variable of Kubeconfig is KUBECONFIG,
	// a list of files as for kubectl.
	Kubeconfig, Context string
	// As and AsGroups are the user and groups to impersonate. Default: none.
	As       string
	AsGroups []string
	// QPS and Burst limit the requests of a kube.Cluster: see kube.Connect. Default: 0, no limit.
	QPS   float64
	Burst int
	// Namespaces are those of kube.Cluster.SetNamespaces, to which everything is limited. Default: all.
	Namespaces []string
	// ReadOnly and WriteLimit are those of kube.Cluster. Default: false, and 0, no limit.
	ReadOnly   bool
	WriteLimit float64

	// Listen is the address of the HTTP server, or several with commas. Default: none.
	Listen string
	// ProbeListen is that of Config. Default: none.
	ProbeListen string
	// CertFile and KeyFile are PEM files of the HTTP server's certificate and its key: see Config.TLS. They are read
	// again when they change; while they are not valid, the previous certificate stays in use. Default: none.
	CertFile, KeyFile string
	// Authorize protects the HTTP server with the cluster of New: see Config.AuthorizeWith. Default: false.
	Authorize bool
	// Pprof is that of Config. Default: false.
	Pprof bool

	// LeaderElect makes the group LeaderOnly run only while this process holds the lease. Default: false.
	LeaderElect bool
	// LeaseName and LeaseNamespace identify the lease. LeaseName is required for LeaderElect. LeaseNamespace defaults
	// to the namespace of the kubeconfig's context, or to the Pod's own if its service account is used: never to one of
	// Namespaces, because during an update that changes them two replicas would lead.
	LeaseName, LeaseNamespace string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of leader.Config, with its defaults.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// ShutdownTimeout is that of Config, with its default.
	ShutdownTimeout time.Duration

	// LogLevels are the lowest levels of the records of Logger. Default: info for all loggers.
	LogLevels *LogLevels
	// LogFormat is "text" or "json". Default: text.
	LogFormat string
	// LogHide are keys of attributes whose values Logger does not write, in upper or lower case. Default: none.
	LogHide []string
}

// Names of flags with special rules.
const (
	configFlag      = "config"
	kubeconfigFlag  = "kubeconfig"
	leaderElectFlag = "leader-elect"
)

// AddFlags adds the flags to a FlagSet, and adds the names of the environment variables to the usage of all its flags.
// Parse calls it. Programs with a pflag.FlagSet call it and Complete:
//
//	var goFlags flag.FlagSet
//	options.AddFlags(&goFlags)
//	flags.AddGoFlagSet(&goFlags)
//	...
//	if err := options.Complete(&goFlags, flags.Changed); err != nil {
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.LeaseDuration = cmp.Or(o.LeaseDuration, leadership.DefaultLeaseDuration)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, leadership.DefaultRenewDeadline)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, leadership.DefaultRetryPeriod)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, DefaultShutdownTimeout)
	o.LogFormat = cmp.Or(o.LogFormat, "text")
	o.LogLevels = cmp.Or(o.LogLevels, &LogLevels{})

	flags.StringVar(&o.ConfigFile, configFlag, o.ConfigFile, "YAML or JSON `file` with flags as fields, for example "+
		"\"log-level: debug\"; flags and environment variables take precedence")
	flags.StringVar(&o.Kubeconfig, kubeconfigFlag, o.Kubeconfig, "kubeconfig `file` of the cluster; by default the "+
		"Pod's service account, or ~/.kube/config outside a Pod")
	flags.StringVar(&o.Context, "context", o.Context, "`name` of the kubeconfig's context; by default its current one")
	flags.StringVar(&o.As, "as", o.As, "`user` to impersonate")
	flags.Var(&list{values: &o.AsGroups}, "as-group", "`group` to impersonate; may be repeated, or be a list "+
		"with commas")
	flags.Float64Var(&o.QPS, "kube-api-qps", o.QPS, "limit of requests per second to the API server; 0 means no limit")
	flags.IntVar(&o.Burst, "kube-api-burst", o.Burst, "number of requests above kube-api-qps in a burst")
	flags.Var(&list{values: &o.Namespaces}, "namespaces", "`namespaces` to work in, for which Roles are enough; may "+
		"be repeated, or be a list with commas; by default all, which needs a ClusterRole")
	flags.BoolVar(&o.ReadOnly, "read-only", o.ReadOnly, "send no writes to the API server; handlers that write fail, "+
		"and are retried")
	flags.Float64Var(&o.WriteLimit, "write-limit", o.WriteLimit, "limit of writes per second to the API server; 0 "+
		"means no limit")
	flags.StringVar(&o.Listen, "listen", o.Listen, "`address` of the HTTP server, for example \":8080\", or several "+
		"with commas; no server if it is empty")
	flags.StringVar(&o.ProbeListen, "probe-listen", o.ProbeListen, "`address` of a second HTTP server with the "+
		"probes, without TLS; listen then serves the rest with TLS")
	flags.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "PEM `file` of the HTTP server's certificate; reloaded "+
		"when it changes; without it no TLS, or with probe-listen a self-signed certificate")
	flags.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "PEM `file` of the key of tls-cert-file")
	flags.BoolVar(&o.Authorize, "authorize", o.Authorize, "allow HTTP requests, except probes, only with a token of "+
		"the cluster and RBAC for the path")
	flags.BoolVar(&o.Pprof, "pprof", o.Pprof, "serve profiles below /debug/pprof")
	flags.BoolVar(&o.LeaderElect, leaderElectFlag, o.LeaderElect, "work only while this process holds the lease")
	flags.StringVar(&o.LeaseName, "lease-name", o.LeaseName, "`name` of the lease")
	flags.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "`namespace` of the lease; by default "+
		"that of the Pod or of the kubeconfig's context")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration, "maximum time without a leader after a "+
		"crash, in whole seconds")
	flags.DurationVar(&o.RenewDeadline, "renew-deadline", o.RenewDeadline, "time after which a leader stops that "+
		"cannot renew the lease")
	flags.DurationVar(&o.RetryPeriod, "retry-period", o.RetryPeriod, "time between two attempts to acquire or "+
		"renew the lease")
	flags.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "maximum time of the shutdown; must "+
		"be less than the Pod's terminationGracePeriodSeconds")
	flags.Var(o.LogLevels, "log-level", "lowest `level` of log records: debug, info (default), warn or error; "+
		"\"info,webapp=debug\" has another one for the controller webapp")
	flags.StringVar(&o.LogFormat, "log-format", o.LogFormat, "`format` of log records: text or json")
	flags.Var(&list{values: &o.LogHide}, "log-hide", "`key` of log attributes whose values are hidden; may be "+
		"repeated, or be a list with commas")
	flags.VisitAll(func(f *flag.Flag) { f.Usage += " ($" + o.variable(f.Name) + ")" })
}

func (o *Options) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(o.As == "" && len(o.AsGroups) > 0, "as-group needs as: the API server does not impersonate groups "+
		"without a user")
	mistakes.AddIf((o.CertFile == "") != (o.KeyFile == ""), "tls-cert-file is %q and tls-private-key-file is %q: set "+
		"both or none", o.CertFile, o.KeyFile)
	mistakes.AddIf(o.QPS < 0 || o.QPS > math.MaxFloat32 || math.IsNaN(o.QPS) || o.Burst < 0, "kube-api-qps is %g and "+
		"kube-api-burst is %d: they must be numbers that are not negative", o.QPS, o.Burst)
	mistakes.AddIf(o.WriteLimit < 0 || math.IsInf(o.WriteLimit, 0) || math.IsNaN(o.WriteLimit), "write-limit is %g: "+
		"want a number of writes per second that is not negative", o.WriteLimit)
	mistakes.AddIf(o.LeaderElect && o.LeaseName == "", "leader-elect needs lease-name")
	mistakes.AddIf(o.ShutdownTimeout <= 0, "shutdown-timeout is %s: it must be positive", o.ShutdownTimeout)
	mistakes.AddIf(o.LogFormat != "text" && o.LogFormat != "json", "log-format is %q: it must be text or "+
		"json", o.LogFormat)
	return mistakes.Err()
}

// RESTConfig returns a config for the first cluster that it finds: in the file Kubeconfig; in the files in the
// environment variable KUBECONFIG; the one of the Pod in which the program runs, with its service account; in
// ~/.kube/config. If a file is named, or a Context, it never uses the service account. It makes no request. It sets the
// default of LeaseNamespace. The error contains the places where it has looked.
func (o *Options) RESTConfig() (*rest.Config, error) {
	config, namespace, err := kubeconfig.Load(o.Kubeconfig, o.Context)
	if err != nil {
		return nil, fmt.Errorf("%w (flags: --kubeconfig, --context)", err)
	}
	o.LeaseNamespace = cmp.Or(o.LeaseNamespace, namespace)
	if o.As != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: o.As, Groups: o.AsGroups}
	}
	config.QPS, config.Burst = float32(cmp.Or(o.QPS, -1)), o.Burst // 0 would be client-go's default
	return config, nil
}

// Connect returns kube.Connect of the RESTConfig, with Namespaces, ReadOnly, WriteLimit and Logger. To change the
// config, call these functions instead.
func (o *Options) Connect(addTypes ...func(*runtime.Scheme) error) (*kube.Cluster, error) {
	config, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	cluster, err := kube.Connect(config, addTypes...)
	if err != nil {
		return nil, err
	}
	if err := cluster.SetNamespaces(o.Namespaces...); err != nil {
		return nil, fmt.Errorf("%w (flag: --namespaces)", err)
	}
	cluster.SetReadOnly(o.ReadOnly)
	cluster.SetWriteLimit(o.WriteLimit)
	cluster.SetLogger(o.Logger())
	return cluster, nil
}

// Logger returns a logger that writes to the standard error, with the levels of LogLevels also if they change later. It
// writes the namespace and name of a Kubernetes object in place of its content, and hides other values that contain
// objects, their metadata or data of Secrets (map[string][]byte), and the attributes in LogHide.
func (o *Options) Logger() *slog.Logger { return o.loggerTo(os.Stderr) }

func (o *Options) loggerTo(w io.Writer) *slog.Logger {
	o.LogLevels = cmp.Or(o.LogLevels, &LogLevels{})
	options := &slog.HandlerOptions{Level: slog.Level(math.MinInt), ReplaceAttr: hider(o.LogHide)}
	handler := slog.Handler(slog.NewTextHandler(w, options))
	if o.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(&leveledHandler{Handler: handler, levels: o.LogLevels})
}

// New returns New of config, in which the options are the values of fields that are zero. LeaderElection is set if
// LeaderElect is true, and otherwise nil; the config's, which may have a few fields, or none, supplies what has no
// option. Logger is that of the cluster if it has one (Connect sets it), otherwise that of the options.
//
// It also sets the Go runtime's memory limit to nine tenths of the memory limit of the process's cgroup, unless the
// environment variable GOMEMLIMIT is set or the program has set a limit. GOMEMLIMIT=off disables it.
func (o *Options) New(cluster *kube.Cluster, config Config) (*Manager, error) {
	if config.Listener == nil {
		config.Listen = cmp.Or(config.Listen, o.Listen)
	}
	config.ProbeListen = cmp.Or(config.ProbeListen, o.ProbeListen)
	if config.hasServer() {
		config.certFile, config.keyFile = o.CertFile, o.KeyFile
		config.Pprof = config.Pprof || o.Pprof
		if o.Authorize {
			config.AuthorizeWith = cmp.Or(config.AuthorizeWith, cluster)
		}
	}
	config.ShutdownTimeout = cmp.Or(config.ShutdownTimeout, o.ShutdownTimeout)
	if logger := cluster.Logger(); logger != slog.Default() {
		config.Logger = cmp.Or(config.Logger, logger)
	}
	config.Logger = cmp.Or(config.Logger, o.Logger())
	var election leader.Config
	if config.LeaderElection != nil {
		election = *config.LeaderElection
	}
	config.LeaderElection = nil
	if o.LeaderElect {
		election.Cluster = cmp.Or(election.Cluster, cluster)
		election.Name = cmp.Or(election.Name, o.LeaseName)
		election.Namespace = cmp.Or(election.Namespace, o.LeaseNamespace)
		election.LeaseDuration = cmp.Or(election.LeaseDuration, o.LeaseDuration)
		election.RenewDeadline = cmp.Or(election.RenewDeadline, o.RenewDeadline)
		election.RetryPeriod = cmp.Or(election.RetryPeriod, o.RetryPeriod)
		config.LeaderElection = &election
	}
	setMemoryLimit(config.Logger, os.DirFS("/"))
	return New(config)
}
