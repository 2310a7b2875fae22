package localcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a running cluster: one that Start has started, or an existing one. It is safe for concurrent use.
//
// The states of a cluster that Start has started:
//
//	running  the API server answers
//	killed   after Kill: connections are refused, the data and the port are kept
//	stopped  after Stop, or after the API server ended by itself
//
// Restart changes the state from running or killed to running. The state stopped is final.
type Cluster struct {
	// Immutable after Start.
	config     *rest.Config
	second     string // URL of the second API server, or ""
	kubeconfig string
	users      []User
	supervisor *supervisor // nil for an existing cluster, which must not be controlled
}

// Start starts a cluster, or connects to an existing one, and returns when it is ready.
//
// Flow:
//  1. If [EnvExisting] or Config.Kubeconfig name a cluster: wait until it responds.
//  2. Otherwise [Build] the binary, unless Config.Binary is set. The first build on a
//     machine takes minutes.
//  3. Start the API server (about 2 s), then the controllers and nodes if requested
//     (about 1 s), and wait for each.
//
// Guarantees: with Controllers, Pods can be created in the default namespace at once; with Nodes, they get bound. If
// Start fails, nothing keeps running. The cluster ends with this process, even if the process is killed.
//
// The caller must call Stop. ctx only applies to Start, not to the lifetime of the cluster.
//
// Errors: an invalid Config (all mistakes at once), a failed build, a port or Dir that is in use, an existing cluster
// with another Kubernetes version, a cluster that is not ready in time (with the last log lines of its components), and
// the end of ctx.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("localcluster: invalid Config: %w", err)
	}
	cfg = cfg.withDefaults()
	if existing, ok := existingCluster(cfg); ok {
		return existing.connect(ctx, cfg)
	}
	if err := supported(); err != nil {
		return nil, err
	}
	if cfg.Binary == "" {
		binary, err := Build(ctx, cfg.KubernetesVersion, cfg.Progress)
		if err != nil {
			return nil, err
		}
		cfg.Binary = binary
	}
	s, ready, err := startSupervisor(ctx, cfg)
	if err != nil {
		return nil, err
	}
	config, err := loadConfig(ready.Kubeconfig)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return &Cluster{
		config: config, second: ready.Second, kubeconfig: ready.Kubeconfig, users: cfg.Users,
		supervisor: s,
	}, nil
}

// RESTConfig returns a copy of the administrator's configuration. It has no client-side rate limit (QPS -1; client-go's
// default is 5).
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// SecondRESTConfig returns RESTConfig for the second API server, or nil without Config.SecondServer.
func (c *Cluster) SecondRESTConfig() *rest.Config {
	if c.second == "" {
		return nil
	}
	config := c.RESTConfig()
	config.Host = c.second
	return config
}

// Kubeconfig returns the path of the administrator's kubeconfig file. For an existing cluster it is the file with its
// configuration, or "" if that came from several files.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Existing reports whether the cluster existed before Start. If so, Stop does nothing, and Kill, Restart and Compact
// return an error.
func (c *Cluster) Existing() bool { return c.supervisor == nil }

// User returns a configuration for requests as the user name in exactly these groups (the API server adds
// system:authenticated). Without groups, a user in Config.Users has the groups that are set there.
//
// For a cluster that Start has started, the configuration has its own client certificate. For an existing cluster it
// has the administrator's credentials and impersonates the user, so the administrator must be allowed to impersonate.
//
// Errors: an empty name, a stopped cluster, and the end of ctx.
func (c *Cluster) User(ctx context.Context, name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("localcluster: the name of the user is empty")
	}
	if i := slices.IndexFunc(c.users, func(u User) bool { return u.Name == name }); i >= 0 && len(groups) == 0 {
		groups = c.users[i].Groups
	}
	if c.Existing() {
		config := c.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
		return config, nil
	}
	reply, err := c.supervisor.request(ctx, command{Command: "user", Name: name, Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("localcluster: creating the user %q: %w", name, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(reply.Content))
	if err != nil {
		return nil, fmt.Errorf("localcluster: reading the kubeconfig of the user %q: %w", name, err)
	}
	config.QPS = -1
	return config, nil
}

// Stop stops the cluster and removes a temporary folder, and returns when both are done. Further calls and calls for an
// existing cluster do nothing.
//
// Errors: the reason why the cluster ended before Stop, if it did.
func (c *Cluster) Stop() error {
	if c.Existing() {
		return nil
	}
	if err := c.supervisor.stop(); err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	return nil
}

// Kill ends the API server and its etcd with SIGKILL, like a crash, and returns when they have ended. Connections are
// refused until Restart. Controllers and nodes keep running without a server. A second Kill does nothing. A concurrent
// Restart returns an error.
//
// Errors: an existing or a stopped cluster.
func (c *Cluster) Kill() error {
	if c.Existing() {
		return errExisting("kill")
	}
	// No ctx: the reply takes milliseconds, or the supervisor ends.
	if _, err := c.supervisor.requestUntil(nil, command{Command: "kill"}); err != nil {
		return fmt.Errorf("localcluster: killing the API server: %w", err)
	}
	return nil
}

// Restart kills the API server, unless Kill has done so, starts it again with the same data, address and certificates,
// and returns when it is ready. Existing configurations stay valid. Controllers and nodes are ready too: they have
// processed objects of the new server. If the server was down for more than 10 s they are restarted, because by then
// their reconnection backoff is long.
//
// Errors: an existing or a stopped cluster, a server that is not ready in time, and the end of ctx (the server may
// still become ready).
func (c *Cluster) Restart(ctx context.Context) error {
	if c.Existing() {
		return errExisting("restart")
	}
	if err := c.Kill(); err != nil {
		return err
	}
	if _, err := c.supervisor.request(ctx, command{Command: "start"}); err != nil {
		return fmt.Errorf("localcluster: restarting the API server: %w", err)
	}
	return nil
}

// Compact removes all versions before the current one from etcd, as the API server does with those that are older than
// five minutes. Lists of an older version and their continue tokens then fail with 410 Expired. But an API server
// serves from its caches what they still have: watches, and for up to 15 s lists. After a Restart the caches begin with
// the current version.
//
// Errors: an existing cluster, a killed or a stopped one, and the end of ctx.
func (c *Cluster) Compact(ctx context.Context) error {
	if c.Existing() {
		return errExisting("compact")
	}
	if _, err := c.supervisor.request(ctx, command{Command: "compact"}); err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	return nil
}

func errExisting(what string) error {
	return fmt.Errorf("localcluster: cannot %s a cluster that localcluster did not start; unset %s and "+
		"Config.Kubeconfig to start one", what, EnvExisting)
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("localcluster: reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}
