package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// census is a round's data about the Pods in its namespace.
type census struct {
	// alive are the selected Pods that run and are not being deleted.
	alive []v1alpha1.PodReference
	// exist contains the selected Pods, and the victims of the plan even if they are not selected, that exist and are
	// not being deleted.
	exist map[types.UID]bool
}

// count takes the census for a round of pt.
//
// It sends a request instead of reading a cache. A cache may be stale by any time: deleted Pods would be counted as
// alive, and minAlive would be violated. A list without a resourceVersion contains every earlier write, and one list
// per round is cheaper than a watch of all Pods.
func (o *Operator) count(ctx context.Context, pt *v1alpha1.PodTerminator, selector labels.Selector) (census, error) {
	list, err := o.podClient.Pods(pt.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return census{}, fmt.Errorf("count the Pods of PodTerminator %s: %w", kube.KeyOf(pt), err)
	}
	c := census{exist: map[types.UID]bool{}}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		c.exist[pod.UID] = true
		if pod.Status.Phase == corev1.PodRunning {
			c.alive = append(c.alive, v1alpha1.PodReference{Name: pod.Name, UID: pod.UID})
		}
	}
	if pt.Status.Plan == nil {
		return c, nil
	}
	selected := func(v v1alpha1.PodReference) bool { return c.exist[v.UID] }
	for _, v := range slices.DeleteFunc(slices.Clone(pt.Status.Plan.Victims), selected) {
		// It was deleted, or has lost the label: only the former counts as ended.
		pod, err := o.find(ctx, pt.Namespace, v)
		if err != nil {
			return census{}, err
		}
		c.exist[v.UID] = pod != nil && pod.DeletionTimestamp == nil
	}
	return c, nil
}
