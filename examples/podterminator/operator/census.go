package operator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

// census is what a round needs to know of the Pods in its namespace.
type census struct {
	// alive are the selected Pods that run and are not being deleted.
	alive []v1alpha1.PodReference
	// exist has the Pods that exist and are not being deleted, selected or not.
	exist map[types.UID]bool
}

// count takes the census in the cache. The cache may not have heard yet that the Pods of
// the last round are gone; recent names them, and they are left out.
func (o *Operator) count(namespace string, selector labels.Selector, recent []v1alpha1.PodReference) (census, error) {
	c := census{exist: map[types.UID]bool{}}
	for pod, err := range o.pods.All() {
		if err != nil {
			return census{}, fmt.Errorf("count the Pods of namespace %s: %w", namespace, err)
		}
		ref := v1alpha1.PodReference{Name: pod.Name, UID: pod.UID}
		if pod.Namespace != namespace || pod.DeletionTimestamp != nil || slices.Contains(recent, ref) {
			continue
		}
		c.exist[pod.UID] = true
		if pod.Status.Phase == corev1.PodRunning && selector.Matches(labels.Set(pod.Labels)) {
			c.alive = append(c.alive, ref)
		}
	}
	return c, nil
}
