package compat_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ExampleCreateOrUpdate writes an object only if it differs from the desired state.
func ExampleCreateOrUpdate() {
	cluster, err := kube.Connect(apitest.New(apiserver.ConfigMaps()).Config("shop-operator")) // in a program: of the cluster
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}}
	for _, mode := range []string{"fast", "fast", "safe"} {
		written, err := compat.CreateOrUpdate(ctx, c, config, func(config *corev1.ConfigMap) error {
			config.Data = map[string]string{"mode": mode}
			return nil
		})
		fmt.Println(written.Outcome, written.Object.Data, written.Changed, err)
	}
	// Output:
	// created map[mode:fast] [] <nil>
	// unchanged map[mode:fast] [] <nil>
	// updated map[mode:safe] [data.mode: "fast" -> "safe"] <nil>
}
