package localcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a cluster that runs: one that Start has started, or an existing
// one. Its methods may be called by many goroutines at once.
//
// The states of a cluster that Start has started:
//
//	running  the API server answers
//	killed   after Kill: connections are refused, the data and the port are kept
//	stopped  after Stop, or after the API server ended by itself
//
// Restart goes from running or killed to running. Nothing leads out of stopped.
type Cluster struct {
	// Immutable after Start.
	config     *rest.Config
	kubeconfig string
	users      []User
	supervisor *supervisor // nil: an existing cluster, which is not ours to control
}

// Start starts a cluster, or finds an existing one, and returns when it is ready.
//
// Flow:
//  1. [EnvExisting] or Config.Kubeconfig name a cluster: wait until it answers.
//  2. Otherwise [Build] the binary, unless Config.Binary is given. The first time
//     on a machine that takes minutes.
//  3. Start the API server (about 2 s), then the controllers and nodes that are
//     asked for (about 1 s), and wait for each.
//
// Guarantees: with Controllers, Pods can be created in the default namespace at
// once; with Nodes, they get bound. If Start fails, nothing is left running.
// Whatever happens to this process, the cluster ends with it.
//
// The caller must call Stop. ctx bounds Start alone and not the cluster's life.
//
// Errors: an invalid Config (all mistakes at once), a build that failed, a port
// that is taken, a Dir that is in use, a cluster that is not ready in time (with
// what its components logged last), and the end of ctx.
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
		binary, err := Build(ctx, cfg.Progress)
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
	return &Cluster{config: config, kubeconfig: ready.Kubeconfig, users: cfg.Users, supervisor: s}, nil
}

// RESTConfig returns the administrator's configuration, a copy. It has no limit
// on requests per second (QPS -1), where client-go's default is 5.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of the administrator's kubeconfig file; for an existing
// cluster, of the file it was found with, or "" if that was not one file.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Existing reports whether the cluster was there before Start. Then Stop leaves
// it alone, and Kill and Restart fail.
func (c *Cluster) Existing() bool { return c.supervisor == nil }

// User returns a configuration with which requests come from the user name in
// exactly these groups (the API server adds system:authenticated). Without
// groups, a name out of Config.Users has the groups that it has there.
//
// For a cluster of ours the configuration has a client certificate of its own.
// For an existing cluster it has the administrator's credentials and impersonates
// the user, so the administrator must be allowed to impersonate.
//
// Errors: an empty name, a cluster that is stopped, and the end of ctx.
func (c *Cluster) User(ctx context.Context, name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("localcluster: a user needs a name")
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
		return nil, fmt.Errorf("localcluster: making the user %q: %w", name, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(reply.Content))
	if err != nil {
		return nil, fmt.Errorf("localcluster: reading the kubeconfig of the user %q: %w", name, err)
	}
	config.QPS = -1
	return config, nil
}

// Stop ends the cluster, removes a temporary folder, and returns when both are
// done. It does nothing the second time, and nothing to an existing cluster.
//
// Errors: what ended the cluster, if that was not Stop.
func (c *Cluster) Stop() error {
	if c.Existing() {
		return nil
	}
	if err := c.supervisor.stop(); err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	return nil
}

// Kill ends the API server and its etcd as a crash would (SIGKILL) and returns
// when they are gone. Clients get "connection refused" until Restart. Controllers
// and nodes go on, without a server. Killing twice is no error. A Restart that is
// under way in another goroutine fails.
//
// Errors: an existing cluster, and a cluster that is stopped.
func (c *Cluster) Kill() error {
	if c.Existing() {
		return errExisting("kill")
	}
	// No ctx: the answer takes milliseconds, and either the supervisor sends it or
	// it ends.
	if _, err := c.supervisor.requestUntil(nil, command{Command: "kill"}); err != nil {
		return fmt.Errorf("localcluster: killing the API server: %w", err)
	}
	return nil
}

// Restart kills the API server, if Kill has not, starts it again on the same data
// at the same address with the same certificates, and returns when it is ready.
// Configurations made before stay valid. Controllers and nodes are ready as well:
// they have acted on the new server. After more than 10 s without a server they are
// started anew, because by then they look for one too seldom.
//
// Errors: an existing cluster, a cluster that is stopped, a server that is not
// ready in time, and the end of ctx (the server may become ready later).
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

func errExisting(what string) error {
	return fmt.Errorf("localcluster: cannot %s a cluster that localcluster did not start; unset %s and Config.Kubeconfig to have one of its own", what, EnvExisting)
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("localcluster: reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}
