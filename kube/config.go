package kube

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LoadConfig finds the cluster that a program is to talk to, as kubectl does: the file
// path, if it is not empty; otherwise the files that the KUBECONFIG environment variable
// names; otherwise ~/.kube/config. A program that finds none of them and runs in a Pod
// gets the Pod's own service account.
//
// It makes no request. The error says what was looked at.
func LoadConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load a kubeconfig from %v: %w", rules.GetLoadingPrecedence(), err)
	}
	return config, nil
}
