package leader

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// podUIDVariable is the environment variable with the uid of the Pod.
const podUIDVariable = "POD_UID"

// Config configures an Elector.
type Config struct {
	// Cluster is the cluster of the lease. The lease's requests have their own connections, unless the rest.Config of
	// the Cluster has a Transport. Required.
	Cluster *kube.Cluster

	// Name is the lease's name. All processes that compete must use the same name, and nothing else may use it.
	// Required.
	Name string
	// Namespace is the lease's namespace. Default: the Pod's own. Required outside a Pod.
	Namespace string
	// Identity identifies this process in the lease. Two Electors must not use the same identity at the same time. If
	// the lease has this identity, but another process wrote it, the Elector waits until it expires; so a process that
	// is restarted after a crash waits too. Default: the host's name, which in a Pod is the Pod's name, an underscore
	// and a random UUID. With Fence it begins with the uid of the Pod of this process and an underscore. Default then:
	// the environment variable POD_UID (from the downward API, metadata.uid), an underscore and a random UUID.
	Identity string
	// Fence makes the Elector work only under a policy with which the API server rejects the writes of every process
	// but the holder of the lease, also of one that was paused or partitioned and sends a write late: see
	// FenceManifest. A candidate does not acquire the lease before the policy has rejected a write of its own, and a
	// new leader does not work before the policy accepts one. Both are creates with dryRun, so the fence needs no
	// further permission. It takes about 10 ms of a take-over. What is left: the API servers of a cluster see a new
	// holder at different times; this one is the API server of Cluster. A Cluster has one fenced lease, because each
	// fence rejects what the holder of another one writes. Default: false.
	Fence bool
	// Labels are set on the lease by its holder. Labels with other keys are kept. Default: none.
	Labels map[string]string

	// LeaseDuration is the time for which other processes wait, after they last saw the lease renewed, before they
	// acquire it. A candidate uses the holder's LeaseDuration or its own, whichever is longer. After a crash there is
	// no leader for that time, and up to 4.4 times RetryPeriod more. It must be a whole number of seconds, the unit of
	// a Lease, and longer than RenewDeadline. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is the time after which the holder counts leadership as lost if it cannot renew the lease. It is
	// measured from the start of the last successful renewal. It must be longer than 1.2 times RetryPeriod.
	// The timeout of a request is half of it. Default: 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals. Between two attempts to acquire the lease it is lengthened at
	// random, to at most 2.2 times. Default: 2 s.
	RetryPeriod time.Duration
}

// withDefaults returns the config with the defaults of its zero fields. It reads the Pod's namespace from file.
func (c Config) withDefaults(file string) (Config, error) {
	var errs []error
	c.LeaseDuration = cmp.Or(c.LeaseDuration, leadership.DefaultLeaseDuration)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, leadership.DefaultRenewDeadline)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, leadership.DefaultRetryPeriod)
	c.Labels = maps.Clone(c.Labels)
	if c.Namespace == "" {
		namespace, err := kubeconfig.PodNamespace(file)
		c.Namespace = namespace
		errs = append(errs, err)
	}
	if c.Identity == "" && c.Fence {
		c.Identity = os.Getenv(podUIDVariable) + identitySeparator + string(uuid.NewUUID())
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fmt.Errorf("find the host's name: %w: set Identity instead", err))
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	return c, errors.Join(errs...)
}

// podUID returns the uid of the Pod in Identity, or "" without one.
func (c Config) podUID() string {
	uid, _, found := strings.Cut(c.Identity, identitySeparator)
	if !found {
		return ""
	}
	return uid
}

// validate returns all mistakes in a config with its defaults.
func (c Config) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Cluster == nil, "Cluster is required: kube.Connect returns one")
	if c.Name == "" {
		mistakes.Addf("Name is required: all processes that compete use the same lease")
	} else if problems := validation.IsDNS1123Subdomain(c.Name); problems != nil {
		mistakes.Addf("Name %q is not a valid name: %s", c.Name, strings.Join(problems, ", "))
	}
	if c.Namespace == "" {
		mistakes.Addf("Namespace is required outside a Pod")
	} else if problems := validation.IsDNS1123Label(c.Namespace); problems != nil {
		mistakes.Addf("Namespace %q is not a valid name: %s", c.Namespace, strings.Join(problems, ", "))
	}
	mistakes.AddIf(c.Identity == noLeaderYet, "Identity %q is reserved for leases that have had no leader "+
		"yet", c.Identity)
	isPrinted := apiobject.ObserversOf(c.Cluster).RecordsPermissions() // it has no Pod
	isOfPod := strings.Contains(c.Identity, identitySeparator)
	if uid := os.Getenv(podUIDVariable); !isPrinted {
		isOfPod = c.podUID() != "" && (uid == "" || c.podUID() == uid)
	}
	if c.Fence && !isOfPod {
		mistakes.Addf("Identity is %q: for Fence it must begin with the uid of the Pod and %q: set the environment "+
			"variable %s from the downward API (fieldPath metadata.uid)", c.Identity, identitySeparator, podUIDVariable)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.Labels[key])...)
		mistakes.AddIf(problems != nil, "Labels: %q: %q is not a valid label: "+
			"%s", key, c.Labels[key], strings.Join(problems, ", "))
	}
	mistakes.Join(c.validateTimes())
	return mistakes.Err()
}

func (c Config) validateTimes() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.LeaseDuration%time.Second != 0, "LeaseDuration is %s: the unit of a Lease is a whole "+
		"second", c.LeaseDuration)
	mistakes.AddIf(c.RetryPeriod < 0, "RetryPeriod is %s: it must not be negative (0 means "+
		"%s)", c.RetryPeriod, leadership.DefaultRetryPeriod)
	// The next two conditions also reject negative values.
	if least := time.Duration(jitterFactor * float64(max(c.RetryPeriod, 0))); c.RenewDeadline <= least {
		mistakes.Addf("RenewDeadline is %s: it must be longer than %s, which is %g times RetryPeriod",
			c.RenewDeadline, least, jitterFactor)
	}
	mistakes.AddIf(c.LeaseDuration <= max(c.RenewDeadline, 0), "LeaseDuration is %s: it must be longer than "+
		"RenewDeadline, %s, so that the holder stops before a new leader", c.LeaseDuration, c.RenewDeadline)
	return mistakes.Err()
}
