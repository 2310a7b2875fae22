package localcluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultReadyTimeout is the default of Config.ReadyTimeout.
const DefaultReadyTimeout = 60 * time.Second

// Config describes the cluster to start. Its zero value is an API server without controllers, in a temporary folder and
// on a free port.
type Config struct {
	// Controllers adds kube-controller-manager and kube-scheduler. Without them objects are stored and watched, but a
	// Deployment gets no Pods, nothing is garbage collected and the deletion of a namespace does not finish. Default:
	// false.
	Controllers bool

	// Nodes is the number of simulated nodes (node-0, node-1, ...). Pods that are bound to one are running and ready at
	// once; Pods of a Job succeed after half a second. There are no volumes: claims stay Pending, and so do Pods that
	// use one. A number above 0 implies Controllers. Default: 0.
	Nodes int

	// SecondServer adds a second API server with the same etcd. Cluster.SecondRESTConfig has its address. The servers
	// have caches of their own, so that a read of one may not contain a write to the other yet. Default: false.
	SecondServer bool

	// Dir is the folder for the cluster's data, port and certificates, which is kept between runs. Writes are not
	// synced to disk: the data survives killed processes, but not a crash of the machine. Default: a temporary folder
	// that Stop removes.
	Dir string

	// Port is the port of the API server on 127.0.0.1. Default: the previous port of Dir, or any free port.
	Port int

	// FeatureGates are set for all components. Default: Kubernetes' defaults.
	FeatureGates map[string]bool

	// APIServerArgs are flags for kube-apiserver, such as "--audit-log-path=/tmp/audit.log". One that the cluster sets
	// itself, such as --authorization-mode=Node,RBAC, is replaced, but those of addresses, etcd, certificates and keys
	// are errors. Paths of files must be absolute. Default: none.
	APIServerArgs []string

	// KubernetesVersion is a supported minor version, such as "1.37", or one of the supported patch versions. Errors
	// for other values list them. Default: the environment variable EVENKEEL_KUBERNETES_VERSION, then the module's
	// version.
	KubernetesVersion string

	// Users exist in the cluster from the start. Each has a kubeconfig file in users/ of the cluster's folder;
	// Cluster.User returns their credentials. RBAC rules in the cluster define their permissions: almost none at first.
	// Default: only the administrator.
	Users []User

	// ReadyTimeout limits the wait for the API server, and then for the controllers and for the nodes. It does not
	// include the build. Default: DefaultReadyTimeout.
	ReadyTimeout time.Duration

	// Kubeconfig is the path of a kubeconfig file. Its current context is used instead of a new cluster. A cluster of
	// another KubernetesVersion is an error, and so are FeatureGates and APIServerArgs. All other fields except
	// ReadyTimeout and Progress are ignored. Default: the environment variable EnvExisting decides.
	Kubeconfig string

	// Progress receives the progress of the build and of the start as text lines. Use io.Discard for none. Default:
	// os.Stderr.
	Progress io.Writer

	// Binary is the path of a localcluster binary. Default: the result of Build.
	Binary string
}

// User is a name and groups, as the API server authenticates them.
type User struct {
	Name   string // Required.
	Groups []string
}

// withDefaults returns a copy with the defaults set.
func (c Config) withDefaults() Config {
	c.Controllers = c.Controllers || c.Nodes > 0
	c.KubernetesVersion = cmp.Or(c.KubernetesVersion, os.Getenv(envKubernetesVersion))
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, DefaultReadyTimeout)
	c.FeatureGates = maps.Clone(c.FeatureGates)
	c.APIServerArgs = slices.Clone(c.APIServerArgs)
	c.Users = slices.Clone(c.Users)
	if c.Progress == nil {
		c.Progress = os.Stderr
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Nodes < 0 {
		errs = append(errs, fmt.Errorf("field Nodes is %d: must be 0 or more", c.Nodes))
	}
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("field Port is %d: must be 1 to 65535, or 0 for a free port", c.Port))
	}
	if _, err := requestedVersion(c.KubernetesVersion); err != nil {
		errs = append(errs, err)
	}
	if c.ReadyTimeout < 0 {
		errs = append(errs, fmt.Errorf("field ReadyTimeout is %v: must be positive, or 0 for %v", c.ReadyTimeout,
			DefaultReadyTimeout))
	}
	for i, arg := range c.APIServerArgs {
		if !strings.HasPrefix(arg, "--") {
			errs = append(errs, fmt.Errorf("field APIServerArgs[%d] is %q: must be a flag such as "+
				"--audit-log-path=/tmp/audit.log", i, arg))
		}
	}
	for i, u := range c.Users {
		if u.Name == "" {
			errs = append(errs, fmt.Errorf("field Users[%d] has no Name", i))
		}
		// The command line uses these as separators.
		if strings.Contains(u.Name, "=") || slices.ContainsFunc(u.Groups, func(g string) bool {
			return strings.Contains(g, ",")
		}) {
			errs = append(errs,
				fmt.Errorf(
					`field Users[%d] (%q) has "=" in its name or "," in a group: use Cluster.User for such names`, i,
					u.Name))
		}
	}
	return errors.Join(errs...)
}

// arguments returns the binary's arguments for c.
func (c Config) arguments() []string {
	args := []string{"up", "--control", "--ready-timeout=" + c.ReadyTimeout.String()}
	if c.Controllers {
		args = append(args, "--controllers")
	}
	if c.Nodes > 0 {
		args = append(args, "--nodes="+strconv.Itoa(c.Nodes))
	}
	if c.SecondServer {
		args = append(args, "--second-server")
	}
	if c.Dir != "" {
		args = append(args, "--dir="+c.Dir)
	}
	if c.Port != 0 {
		args = append(args, "--port="+strconv.Itoa(c.Port))
	}
	if len(c.FeatureGates) > 0 {
		var gates []string
		for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
			gates = append(gates, name+"="+strconv.FormatBool(c.FeatureGates[name]))
		}
		args = append(args, "--feature-gates="+strings.Join(gates, ","))
	}
	if c.KubernetesVersion != "" {
		args = append(args, "--kubernetes-version="+c.KubernetesVersion)
	}
	for _, arg := range c.APIServerArgs {
		args = append(args, "--apiserver-arg="+arg)
	}
	for _, u := range c.Users {
		args = append(args, "--user="+u.Name+"="+strings.Join(u.Groups, ","))
	}
	return args
}
