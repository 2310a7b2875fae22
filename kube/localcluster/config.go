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

// DefaultReadyTimeout is how long Start and Restart wait for the cluster to
// become ready when Config.ReadyTimeout is zero.
const DefaultReadyTimeout = 60 * time.Second

// Config says which cluster to start. Its zero value is an API server alone, in
// a temporary folder and on a free port.
type Config struct {
	// Controllers adds kube-controller-manager and kube-scheduler. Without them
	// objects are stored and watched, but a Deployment gets no Pods, nothing is
	// garbage collected and no namespace finishes being deleted. Default: false.
	Controllers bool

	// Nodes is the number of simulated nodes (node-0, node-1, ...). Pods that are
	// bound to one are running and ready at once; Pods of a Job succeed after half
	// a second. There are no volumes: claims stay Pending, and with them Pods that
	// use one. More than zero implies Controllers. Default: 0.
	Nodes int

	// Dir keeps the cluster's data between runs, along with its port and its
	// certificates. Nothing waits for the disk, so the data survives the death of
	// processes and not that of the machine.
	// Default: a temporary folder that is removed by Stop.
	Dir string

	// Port of the API server on 127.0.0.1. Default: the one that Dir had before,
	// else any free one.
	Port int

	// FeatureGates are given to all components. Default: those of Kubernetes.
	FeatureGates map[string]bool

	// Users are known to the cluster from the start, each with a kubeconfig file
	// in users/ of the cluster's folder; Cluster.User gives their credentials.
	// What they may do is up to the RBAC rules that are in the cluster: nothing
	// much at first. Default: none but the administrator.
	Users []User

	// ReadyTimeout bounds the wait for the API server, and then for the
	// controllers and for the nodes. It does not include building.
	// Default: DefaultReadyTimeout.
	ReadyTimeout time.Duration

	// Kubeconfig is the path of a kubeconfig file: its current context is used
	// instead of a new cluster. All other fields but ReadyTimeout and Progress are
	// ignored then. Default: the environment variable EnvExisting decides.
	Kubeconfig string

	// Progress is told, in lines for people, how far the build and the start are.
	// Default: os.Stderr. io.Discard keeps silent.
	Progress io.Writer

	// Binary is the path of a localcluster binary. Default: Build's.
	Binary string
}

// User is a name and groups, as the API server sees them in a request.
type User struct {
	Name   string // Required.
	Groups []string
}

// withDefaults returns a copy with the documented defaults in place.
func (c Config) withDefaults() Config {
	c.Controllers = c.Controllers || c.Nodes > 0
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, DefaultReadyTimeout)
	c.FeatureGates = maps.Clone(c.FeatureGates)
	c.Users = slices.Clone(c.Users)
	if c.Progress == nil {
		c.Progress = os.Stderr
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Nodes < 0 {
		errs = append(errs, fmt.Errorf("field Nodes is %d: give 0 or more", c.Nodes))
	}
	if c.Port < 0 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("field Port is %d: give 1 to 65535, or 0 for a free one", c.Port))
	}
	if c.ReadyTimeout < 0 {
		errs = append(errs, fmt.Errorf("field ReadyTimeout is %v: give a positive duration, or 0 for %v", c.ReadyTimeout, DefaultReadyTimeout))
	}
	for i, u := range c.Users {
		if u.Name == "" {
			errs = append(errs, fmt.Errorf("field Users[%d] has no Name", i))
		}
		// The command line separates with these.
		if strings.Contains(u.Name, "=") || slices.ContainsFunc(u.Groups, func(g string) bool { return strings.Contains(g, ",") }) {
			errs = append(errs, fmt.Errorf(`field Users[%d] (%q) has "=" in its name or "," in a group: use Cluster.User for such names`, i, u.Name))
		}
	}
	return errors.Join(errs...)
}

// arguments are the command line of the binary for c.
func (c Config) arguments() []string {
	args := []string{"up", "--control", "--ready-timeout=" + c.ReadyTimeout.String()}
	if c.Controllers {
		args = append(args, "--controllers")
	}
	if c.Nodes > 0 {
		args = append(args, "--nodes="+strconv.Itoa(c.Nodes))
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
	for _, u := range c.Users {
		args = append(args, "--user="+u.Name+"="+strings.Join(u.Groups, ","))
	}
	return args
}
