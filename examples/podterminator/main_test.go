package main

import (
	"context"
	"fmt"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { exampletest.Main(m, localcluster.Config{}, nil) }

func install(ctx context.Context, cluster *kube.Cluster) error {
	if _, err := manifest.InstallCRD(ctx, cluster, config.CRD); err != nil {
		return err
	}
	if err := manifest.Apply(ctx, cluster, "", config.RBAC); err != nil {
		return err
	}
	// Without a lease, the operator would wait for the time of one.
	return manifest.Apply(ctx, cluster, operator.Name, []byte(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: `+operator.Name+`}}`))
}

func TestProgramWithSample(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{})
	cluster, err := kube.Connect(exampletest.RESTConfig(t), v1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	terminators, err := cluster.RESTClient(v1alpha1.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		leased bool
	}{
		{leased: true},
		{args: []string{"--leader-elect=false"}},
	} {
		t.Run(fmt.Sprint(tt.args), func(t *testing.T) {
			namespace := exampletest.Namespace(t)
			if err := manifest.Apply(t.Context(), cluster, namespace, config.Sample); err != nil {
				t.Fatal(err)
			}
			_, stop := exampletest.Go(t, func(ctx context.Context, _ io.Writer) error {
				return run(ctx, append(tt.args, "--namespaces", namespace))
			})
			exampletest.Eventually(t, "the first round has ended", func(ctx context.Context) (bool, string) {
				pt := &v1alpha1.PodTerminator{}
				err := terminators.Get().Namespace(namespace).Resource(v1alpha1.Resource).Name("web").Do(ctx).Into(pt)
				return err == nil && pt.Status.Rounds == 1, fmt.Sprintf("%v, %+v", err, pt.Status)
			})
			if held := leaseIsHeld(t); held != tt.leased {
				t.Errorf("while it runs, the lease is held: %v, want %v", held, tt.leased)
			}
			stop()
			if leaseIsHeld(t) {
				t.Error("the lease is still held after the end")
			}
		})
	}
}

func leaseIsHeld(t *testing.T) bool {
	t.Helper()
	client, err := coordinationv1client.NewForConfig(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Leases(operator.Name).Get(t.Context(), operator.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the lease: %v", err)
	}
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
}
