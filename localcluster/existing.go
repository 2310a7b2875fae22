package localcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// EnvExisting is the name of the environment variable that makes Start use an existing cluster. Its value is the path
// of a kubeconfig file, or true (1, yes, on) for the one that kubectl would use (KUBECONFIG, then the file in the home
// directory). If it is empty or false (0, no, off), Start starts a cluster.
const EnvExisting = "EVENKEEL_USE_EXISTING_CLUSTER"

// existing is an existing cluster to connect to.
type existing struct {
	rules *clientcmd.ClientConfigLoadingRules
}

func existingCluster(cfg Config) (existing, bool) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cfg.Kubeconfig
	if rules.ExplicitPath != "" {
		return existing{rules}, true
	}
	value := os.Getenv(EnvExisting)
	if value == "" {
		return existing{}, false
	}
	switch strings.ToLower(value) {
	case "true", "t", "1", "yes", "y", "on":
		return existing{rules}, true
	case "false", "f", "0", "no", "n", "off":
		return existing{}, false
	}
	rules.ExplicitPath = value
	return existing{rules}, true
}

// connect waits until the cluster is ready.
func (e existing) connect(ctx context.Context, cfg Config) (*Cluster, error) {
	if len(cfg.FeatureGates) > 0 || len(cfg.APIServerArgs) > 0 {
		return nil, fmt.Errorf("localcluster: Config.FeatureGates and Config.APIServerArgs cannot be set for the "+
			"existing cluster (%s): unset %s and Config.Kubeconfig to start one with them", e.name(), EnvExisting)
	}
	var config *rest.Config
	raw, err := e.rules.Load()
	if err == nil {
		config, err = clientcmd.NewNonInteractiveClientConfig(*raw, "", nil, e.rules).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("localcluster: loading the kubeconfig of the existing cluster (%s): %w", e.name(), err)
	}
	config.QPS = -1
	waiting := func(err error) {
		fmt.Fprintf(cfg.Progress, "localcluster: waiting up to %v for the existing cluster (%s) at %s: %v\n",
			cfg.ReadyTimeout, e.name(), config.Host, err)
	}
	if err := waitReady(ctx, config, cfg.ReadyTimeout, waiting); err != nil {
		return nil, fmt.Errorf("localcluster: the existing cluster (%s) at %s is not ready: %w", e.name(),
			config.Host, err)
	}
	if err := checkVersion(config, cfg.KubernetesVersion); err != nil {
		return nil, fmt.Errorf("localcluster: the existing cluster (%s) at %s: %w", e.name(), config.Host, err)
	}
	return &Cluster{config: config, kubeconfig: e.path()}, nil
}

// checkVersion returns an error if the cluster does not have the requested Kubernetes version.
func checkVersion(config *rest.Config, asked string) error {
	want, err := requestedVersion(asked)
	if err != nil || want.text == "" {
		return err
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating an HTTP client: %w", err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for its version: %w", err)
	}
	if !want.includes(version.GitVersion) {
		return fmt.Errorf("it has Kubernetes %s, but Config.KubernetesVersion or %s is %s", version.GitVersion,
			envKubernetesVersion, asked)
	}
	return nil
}

// path returns the file that the configuration came from, or "" if there are several.
func (e existing) path() string {
	if e.rules.ExplicitPath != "" {
		return e.rules.ExplicitPath
	}
	var found []string
	for _, path := range e.rules.GetLoadingPrecedence() {
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

func (e existing) name() string {
	if path := e.path(); path != "" {
		return path
	}
	return "kubectl's default configuration"
}

// waitReady polls /readyz with its own HTTP client, which it closes. It calls waiting once with the first error. It
// returns at once for an error that waiting does not change.
func waitReady(ctx context.Context, config *rest.Config, timeout time.Duration, waiting func(error)) error {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating an HTTP client: %w", err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 200*
		time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil || isHopeless(err) {
			last = nil
			return true, err
		}
		if ctx.Err() == nil { // otherwise the response did not arrive
			if last == nil {
				waiting(err)
			}
			last = err
		}
		return false, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("waited %v: %w; last error: %w", timeout, err, last)
	}
	return err
}

// isHopeless reports whether the kubeconfig does not fit the server: the server rejects the credentials, or its
// certificate is not trusted.
func isHopeless(err error) bool {
	var certificate *tls.CertificateVerificationError
	return apierrors.IsUnauthorized(err) || errors.As(err, &certificate)
}
