// Package kubeconfig finds the cluster of a program.
package kubeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Load returns the config of the first cluster that it finds, and the namespace of its context: in the file path, in
// the files of $KUBECONFIG, the one of the Pod in which the program runs, in ~/.kube/config. The namespace is "" for
// the cluster of the Pod. It is not used if path, $KUBECONFIG or a context is set, whatever the files contain.
func Load(path, context string) (config *rest.Config, namespace string, err error) {
	return load(path, context, rest.InClusterConfig)
}

// Server returns the URL of the API server of config, which identifies the server: two configs with the same URL lead
// to the same server. path is that of the URL. Both are empty if config has no valid host.
func Server(config *rest.Config) (url, path string) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", ""
	}
	server.Path = strings.TrimRight(server.Path, "/")
	return server.String(), server.Path
}

func load(
	path, context string, inCluster func() (*rest.Config, error),
) (config *rest.Config, namespace string, err error) {
	if path == "" && context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		config, err := inCluster()
		if err == nil {
			return config, "", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("load the Pod's service account: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	files := rules.GetLoadingPrecedence()
	raw, err := rules.Load()
	if err == nil {
		// client-go's deferred loader would fall back to the cluster of the Pod.
		overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
		loader := clientcmd.NewNonInteractiveClientConfig(*raw, context, overrides, rules)
		if config, err = loader.ClientConfig(); err == nil {
			namespace, _, err = loader.Namespace()
		}
	}
	switch {
	case err == nil:
		return config, namespace, nil
	case clientcmd.IsEmptyConfig(err) && !slices.ContainsFunc(files, exists):
		return nil, "", noConfig()
	case clientcmd.IsEmptyConfig(err): // also if the context lacks a cluster, or no context is selected
		err = unusable(raw, context)
	}
	return nil, "", fmt.Errorf("load a kubeconfig from %s: %w", strings.Join(files, ", "), err)
}

// exists reports whether a file exists, or cannot be looked for.
func exists(path string) bool {
	_, err := os.Stat(path)
	return path != "" && !errors.Is(err, fs.ErrNotExist)
}

// unusable returns the reason why no cluster is found in the content of files.
func unusable(raw *clientcmdapi.Config, context string) error {
	contexts := slices.Sorted(maps.Keys(raw.Contexts))
	switch err := clientcmd.ConfirmUsable(*raw, context); {
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
	variable, home := clientcmd.RecommendedConfigPathEnvVar, clientcmd.RecommendedHomeFile
	if value := os.Getenv(variable); value != "" {
		return fmt.Errorf("no cluster is configured: $%s names no file that exists (%s): correct it, or unset it to "+
			"use %s or the Pod's service account", variable, value, home)
	}
	return fmt.Errorf("no cluster is configured: the default file %s ($%s is not set) does not exist, and this "+
		"program does not run in a Pod ($KUBERNETES_SERVICE_HOST is not set, or the Pod has no service account "+
		"token): set $%s to the path of a kubeconfig, or pass its path, or run the program in a Pod with a service "+
		"account", home, variable, variable)
}

// NamespaceFile is the file in which a Pod finds its own namespace.
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// PodNamespace reads the namespace of the Pod in which this process runs from file. It returns "" if the file does not
// exist.
func PodNamespace(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the Pod's namespace: %w: set Namespace instead", err)
	}
	return strings.TrimSpace(string(text)), nil
}
