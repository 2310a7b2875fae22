// Package connect has the code that all examples begin with. A program of your own would have these few lines in its
// main function.
package connect

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
)

// FlagUsage explains the flag --kubeconfig of the examples.
const FlagUsage = "the kubeconfig `file` of the cluster; default: $KUBECONFIG, ~/.kube/config, or the Pod's own service account"

// Cluster connects to the cluster that kubectl would use: the one in the given kubeconfig file, or, if the path is
// empty, the one of $KUBECONFIG or ~/.kube/config. Without any of them it uses the service account of its Pod. addTypes
// register the Go types of custom resources.
func Cluster(kubeconfig string, addTypes ...func(*runtime.Scheme) error) (*kube.Cluster, error) {
	config, err := kube.LoadConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: set --kubeconfig or $KUBECONFIG", err)
	}
	return kube.Connect(config, addTypes...)
}
