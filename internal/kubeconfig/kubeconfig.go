// Package kubeconfig finds the cluster of a program.
package kubeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load returns the config of the first cluster that it finds, and the namespace of its context: in the file path, in
// the files of $KUBECONFIG, the one of the Pod in which the program runs, in ~/.kube/config. The namespace is "" for
// the cluster of the Pod. A context selects one of a file, so the cluster of the Pod is not used then.
func Load(path, context string) (config *rest.Config, namespace string, err error) {
	return load(path, context, rest.InClusterConfig)
}

// Server returns the URL of the API server of config, which identifies the server: two configs with the same URL lead
// to the same server. It returns nil if config has no valid host.
func Server(config *rest.Config) *url.URL {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil
	}
	server.Path = strings.TrimRight(server.Path, "/")
	return server
}

func load(
	path, context string, inCluster func() (*rest.Config, error),
) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context})
	if path == "" && context == "" && !anyExists(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		config, err := inCluster()
		if err == nil {
			return config, "", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("load the Pod's service account: %w", err)
		}
	}
	if config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	files := rules.GetLoadingPrecedence()
	switch {
	case clientcmd.IsEmptyConfig(err) && !slices.ContainsFunc(files, anyExists):
		return nil, "", noConfig()
	case clientcmd.IsEmptyConfig(err): // also if the context lacks a cluster, or no context is selected
		return nil, "", fmt.Errorf("load a kubeconfig from %s: %w", strings.Join(files, ", "),
			unusable(loader, context))
	case err != nil:
		return nil, "", fmt.Errorf("load a kubeconfig from %s: %w", strings.Join(files, ", "), err)
	}
	return config, namespace, nil
}

// anyExists reports whether one of the files in a list of paths exists.
func anyExists(list string) bool {
	for path := range strings.SplitSeq(list, string(os.PathListSeparator)) {
		if _, err := os.Stat(path); path != "" && !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// unusable returns the reason why no cluster is found in files that exist.
func unusable(loader clientcmd.ClientConfig, context string) error {
	raw, err := loader.RawConfig()
	if err != nil {
		return err
	}
	contexts := slices.Sorted(maps.Keys(raw.Contexts))
	switch err := clientcmd.ConfirmUsable(raw, context); {
	case len(contexts) == 0:
		return errors.New("there are no contexts")
	case err != nil:
		return fmt.Errorf("%w: the contexts are %q", err, contexts)
	}
	return fmt.Errorf("the context %q has no cluster", cmp.Or(context, raw.CurrentContext))
}

// noConfig returns the error for a program without a cluster. It replaces client-go's error, which mentions
// KUBERNETES_MASTER, because that variable is not used here.
func noConfig() error {
	variable := clientcmd.RecommendedConfigPathEnvVar
	files := fmt.Sprintf("the default file %s ($%s is not set)", clientcmd.RecommendedHomeFile, variable)
	if value := os.Getenv(variable); value != "" {
		files = fmt.Sprintf("$%s (%s)", variable, value)
	}
	return fmt.Errorf("no cluster is configured: %s does not exist, and this program does not run in a Pod "+
		"($KUBERNETES_SERVICE_HOST is not set, or the Pod has no service account token): "+
		"set $%s to the path of a kubeconfig, or pass its path, or run the program in a Pod with a service account",
		files, variable)
}
