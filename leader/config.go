package leader

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/util/connrotation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Defaults of Config. They are those of Kubernetes' own components.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// namespaceFile is where the kubelet tells a Pod its own namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Config says which lease is stood for, and how. It is taken by value: New neither keeps
// nor changes the caller's.
type Config struct {
	// Cluster is where the lease is kept. Requests for the lease have a connection of their own, unless the
	// rest.Config of the Cluster has a Transport. Either Cluster or Client is required.
	Cluster *kube.Cluster
	// Client makes the requests for the lease, in place of Cluster: a clientset's
	// CoordinationV1() is one.
	Client coordinationv1client.LeasesGetter

	// Name is the lease's name. All that compete must use the same one, and nobody else.
	// Required.
	Name string
	// Namespace is the lease's namespace. Default: the Pod's own. Required outside a Pod.
	Namespace string
	// Identity tells those that compete apart; it is written into the lease. No two
	// Electors should use the same one at the same time. A lease that names it and was written by
	// another process is waited for as another's is; so a process that is started again after a
	// crash waits as well. Default: the host's name, which in a Pod is the Pod's, an underscore and a
	// random UUID.
	Identity string
	// Labels are put on the lease by whoever holds it. Labels with other keys are kept.
	// Default: none.
	Labels map[string]string

	// LeaseDuration is how long the others wait, after they last saw the lease renewed,
	// before they take it: the holder's or their own, whichever is longer. After a crash there is no leader for that long, and up to 4.4
	// times RetryPeriod more. A whole number of seconds, because a Lease counts in
	// seconds; longer than RenewDeadline. Default 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long after it began to renew the lease for the last time with
	// success the holder counts leadership as lost. Longer than 1.2 times RetryPeriod; a
	// request is given half of it. Default 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the time from one renewal to the next, and from one attempt to the
	// next, which is lengthened at random to up to 2.2 times for those that wait.
	// Default 2 s.
	RetryPeriod time.Duration

	// Logger receives gained and released leadership at info level, and lost leadership
	// and what stands in the way of it at warning level, once each time that it begins.
	// Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// withDefaults returns the config with every zero field set to its default. The Pod's
// namespace is read from file.
func (c Config) withDefaults(file string) (Config, error) {
	var errs []error
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, DefaultRenewDeadline)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, DefaultRetryPeriod)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Labels = maps.Clone(c.Labels)
	if c.Namespace == "" {
		namespace, err := podNamespace(file)
		c.Namespace = namespace
		errs = append(errs, err)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fmt.Errorf("find the host's name: %w: set Identity instead", err))
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	if c.Cluster != nil && c.Client == nil {
		client, err := newClient(c.Cluster)
		if err != nil {
			errs = append(errs, fmt.Errorf("make a client for leases: %w", err))
		}
		c.Client, c.Cluster = client, nil
	}
	return c, errors.Join(errs...)
}

// ownConnection makes requests for leases on connections that nothing else uses, so that they can be closed.
type ownConnection struct {
	coordinationv1client.LeasesGetter
	*connrotation.ConnectionTracker
}

// newClient returns a client for the leases of a Cluster.
func newClient(cluster *kube.Cluster) (coordinationv1client.LeasesGetter, error) {
	config := cluster.RESTConfig()
	if config.Transport != nil { // its connections are not known
		return coordinationv1client.NewForConfigAndClient(config, cluster.HTTPClient())
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial = dialer.DialContext
	client, err := coordinationv1client.NewForConfig(config)
	return ownConnection{client, dialer.ConnectionTracker}, err
}

// podNamespace reads the namespace of the Pod that this process runs in. It is empty when
// there is no such file.
func podNamespace(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the Pod's namespace: %w: set Namespace instead", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// validate names the mistakes in a config with its defaults set.
func (c Config) validate() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Client == nil:
		mistake("Cluster (or Client) is required: kube.Connect makes one")
	case c.Cluster != nil:
		mistake("Cluster and Client are both set: set one of them")
	}
	if c.Name == "" {
		mistake("Name is required: all that compete use the same lease")
	} else if problems := validation.IsDNS1123Subdomain(c.Name); problems != nil {
		mistake("Name %q cannot name a lease: %s", c.Name, strings.Join(problems, ", "))
	}
	if c.Namespace == "" {
		mistake("Namespace is required outside a Pod")
	} else if problems := validation.IsDNS1123Label(c.Namespace); problems != nil {
		mistake("Namespace %q cannot name a namespace: %s", c.Namespace, strings.Join(problems, ", "))
	}
	if c.Identity == noLeaderYet {
		mistake("Identity %q is reserved for a lease that has had no leader yet", c.Identity)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.Labels[key])...)
		if problems != nil {
			mistake("Labels: %q: %q is no label: %s", key, c.Labels[key], strings.Join(problems, ", "))
		}
	}
	errs = append(errs, c.validateTimes())
	return errors.Join(errs...)
}

func (c Config) validateTimes() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.LeaseDuration%time.Second != 0 {
		mistake("LeaseDuration is %s: a Lease counts in whole seconds", c.LeaseDuration)
	}
	if c.RetryPeriod < 0 {
		mistake("RetryPeriod is %s: it cannot be negative (0 means %s)", c.RetryPeriod, DefaultRetryPeriod)
	}
	// The next two leave no room for negative ones.
	if least := time.Duration(leaderelection.JitterFactor * float64(max(c.RetryPeriod, 0))); c.RenewDeadline <= least {
		mistake("RenewDeadline is %s: it must be longer than %s, which is %g times RetryPeriod", c.RenewDeadline, least, leaderelection.JitterFactor)
	}
	if c.LeaseDuration <= max(c.RenewDeadline, 0) {
		mistake("LeaseDuration is %s: it must be longer than RenewDeadline, %s, so that the holder stops before another begins", c.LeaseDuration, c.RenewDeadline)
	}
	return errors.Join(errs...)
}
