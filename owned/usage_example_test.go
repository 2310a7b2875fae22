package owned_test

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/status"
)

// ExampleNew creates a set. A program creates it once, with all kinds that its children have ever had, because Apply
// searches these kinds for undesired children.
func ExampleNew() {
	var (
		app        *appsv1.StatefulSet // the owner
		config     *corev1.ConfigMap
		service    *corev1.Service
		deployment *appsv1.Deployment // applied when config and service are ready
	)
	_ = func(ctx context.Context, c *client.Client) error {
		kinds := []schema.GroupVersionKind{
			corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Service"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
		}
		children, err := owned.New(owned.Config{Client: c, Name: "webapp", Kinds: kinds})
		if err != nil {
			return err
		}
		report, err := children.Apply(ctx, app, slices.Concat(owned.Of(config, service), owned.Wave(1, deployment))...)
		if err != nil {
			return err
		}
		fmt.Println(report.Pending())
		return nil
	}
	_, err := owned.New(owned.Config{Name: "webapp"}) // the error lists all mistakes
	fmt.Println(err)
	// Output:
	// new set of owned objects: Client is required: client.New makes one
	// Kinds is required: all kinds of children, including those of earlier versions of the program
}

// ExampleReport_States sets the owner's conditions from the states of its children.
func ExampleReport_States() {
	app := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3}}
	report := owned.Report{Results: []owned.Result{{
		Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Key: kube.Key{Namespace: "shop", Name: "web"},
		Desired: true, Outcome: owned.Unchanged, Readiness: readiness.State{Status: readiness.InProgress, Message: "1 of 3 replicas are available"},
	}}}
	conditions := &app.Status.Conditions
	status.Summarize(conditions, app.Generation, report.States()...)
	for _, c := range *conditions {
		fmt.Println(c.Type, c.Status, c.Message)
	}
	// Output:
	// Ready False Deployment shop/web: 1 of 3 replicas are available
	// Reconciling True Deployment shop/web: 1 of 3 replicas are available
}
