// Package connect is the beginning that the examples have in common. A program of your
// own would have these few lines in its main.
package connect

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
)

// FlagUsage explains the flag --kubeconfig of the examples.
const FlagUsage = "the kubeconfig `file` of the cluster; default: $KUBECONFIG, ~/.kube/config, or the Pod's own service account"

// Cluster connects to the cluster that kubectl would talk to: that of the given
// kubeconfig file or, when the path is empty, of $KUBECONFIG or ~/.kube/config. Without
// any of them, it takes the service account of the Pod that it runs in. addTypes register
// the Go types of custom resources.
func Cluster(kubeconfig string, addTypes ...func(*runtime.Scheme) error) (*kube.Cluster, error) {
	config, err := kube.LoadConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: name one with --kubeconfig or $KUBECONFIG", err)
	}
	return kube.Connect(config, addTypes...)
}
