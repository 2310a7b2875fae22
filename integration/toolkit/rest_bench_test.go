package toolkit

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// What a run at rest costs a set of two children, whatever the number of owners: the informers
// find an owner's children by their labels, and do not look at those of others.
func BenchmarkSetAtRest(b *testing.B) {
	cluster := clustertest.Connect(b, local.RESTConfig())
	selection := informer.Selection{LabelSelector: owned.LabelSet + "=bench"}
	configs := clustertest.Informer[*corev1.ConfigMap](b, cluster, selection)
	services := clustertest.Informer[*corev1.Service](b, cluster, selection)
	c := clustertest.Client(b, cluster, configs, services)
	set, err := owned.New(owned.Config{Client: c, Name: "bench", Kinds: []schema.GroupVersionKind{configs.Kind(), services.Kind()}})
	if err != nil {
		b.Fatal(err)
	}
	namespace := clustertest.Namespace(b, c)
	var owners []*corev1.Secret
	for _, n := range []int{10, 1000} {
		for i := len(owners); i < n; i++ {
			owner, err := client.Create(b.Context(), c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("owner-%d", i)}})
			if err != nil {
				b.Fatal(err)
			}
			owners = append(owners, owner)
			if _, err := set.Apply(b.Context(), owner, childrenOf(owner)...); err != nil {
				b.Fatal(err)
			}
		}
		clustertest.Eventually(b, func() string {
			if configs.Len() < n || services.Len() < n {
				return fmt.Sprintf("the informers show %d and %d children", configs.Len(), services.Len())
			}
			return ""
		})
		b.Run(fmt.Sprintf("owners=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				owner := owners[i%10]
				report, err := set.Apply(b.Context(), owner, childrenOf(owner)...)
				if err != nil || report.Changed() {
					b.Fatalf("%v, %v", report, err)
				}
			}
		})
	}
}

func childrenOf(owner kube.Object) []owned.Child {
	meta := metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: owner.GetName()}
	return owned.Of(
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"greeting": "hello"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": owner.GetName()}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		}},
	)
}
