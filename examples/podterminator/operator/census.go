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

// census is what a round needs to know of the Pods in its namespace.
type census struct {
	// alive are the selected Pods that run and are not being deleted.
	alive []v1alpha1.PodReference
	// exist has the selected Pods, and the victims of the plan, selected or not, that
	// exist and are not being deleted.
	exist map[types.UID]bool
}

// count takes the census for a round of pt.
//
// It asks the API server and not a cache. A cache may lag behind by any time: Pods that
// are gone would be counted as alive, and minAlive would not hold. A list without a
// resourceVersion has everything that was written before it, and one list for each round
// costs less than a watch of every Pod.
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
		// It is gone, or it has lost the label: only the former counts as ended.
		pod, err := o.find(ctx, pt.Namespace, v)
		if err != nil {
			return census{}, err
		}
		c.exist[v.UID] = pod != nil && pod.DeletionTimestamp == nil
	}
	return c, nil
}
