package apitest

import (
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Connect returns the cluster of a config, and a client whose calls the cluster observes. It panics if it fails.
func Connect(config *rest.Config) (*kube.Cluster, dynamic.Interface) {
	cluster, err := kube.Connect(config)
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	client, err := dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	return cluster, client
}
