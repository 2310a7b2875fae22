package kube

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LoadConfig returns a config for a cluster by kubectl's rules: the kubeconfig file path, if it is not empty; otherwise
// the files in the environment variable KUBECONFIG; otherwise ~/.kube/config. If no file exists and the program runs in
// a Pod, it uses the Pod's service account.
//
// It makes no request. The error contains the places where it has looked.
func LoadConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, noConfig(rules)
	case err != nil:
		return nil, fmt.Errorf("load a kubeconfig from %s: %w", strings.Join(rules.GetLoadingPrecedence(), ", "), err)
	}
	return config, nil
}

// noConfig returns the error for a program without a cluster. It replaces client-go's error, which mentions
// KUBERNETES_MASTER, because that variable is not used here.
func noConfig(rules *clientcmd.ClientConfigLoadingRules) error {
	variable := clientcmd.RecommendedConfigPathEnvVar
	files := "the file " + rules.ExplicitPath
	if rules.ExplicitPath == "" {
		files = fmt.Sprintf("the default file %s ($%s is not set)", clientcmd.RecommendedHomeFile, variable)
		if value := os.Getenv(variable); value != "" {
			files = fmt.Sprintf("$%s (%s)", variable, value)
		}
	}
	return fmt.Errorf("no cluster is configured: %s names none or does not exist, and this program does not run in a Pod "+
		"($KUBERNETES_SERVICE_HOST is not set, or the Pod has no service account token): "+
		"set $%s to the path of a kubeconfig, or pass its path, or run the program in a Pod with a service account", files, variable)
}
