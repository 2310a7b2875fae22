package evenkeel_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// An operator that maintains a ResourceQuota in each Namespace.
func ExampleMain() { evenkeel.Main("quotas", runQuotas) }

func runQuotas(ctx context.Context, p *evenkeel.Program) error {
	cluster, err := p.Connect()
	if err != nil {
		return err
	}
	quotas, err := evenkeel.New(evenkeel.Config[*corev1.Namespace]{
		Name: "quotas", Cluster: cluster,
		Owns: []watched.Kind{watched.Of[*corev1.ResourceQuota]()},
		Handle: func(ctx context.Context, namespace *corev1.Namespace, run *evenkeel.Run) error {
			_, err := run.Apply(ctx, quotaOf(namespace))
			return err
		},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx, quotas)
}

func quotaOf(namespace *corev1.Namespace) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}},
	}
}
