package kube

import (
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
)

// LoadConfig returns a config for the first cluster that it finds: in the kubeconfig file path, if that is not empty;
// in the files in the environment variable KUBECONFIG; the one of the Pod in which the program runs, with its service
// account; in ~/.kube/config. If path or KUBECONFIG is set, the cluster of the Pod is never used: missing or incomplete
// files are an error. manager.Options adds flags for the context and for impersonation.
//
// It makes no request. The error contains the places where it has looked.
func LoadConfig(path string) (*rest.Config, error) {
	config, _, err := kubeconfig.Load(path, "")
	return config, err
}
