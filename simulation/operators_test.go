package simulation_test

import (
	"context"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/source"
)

// These are the tests of operators of several kinds.

const teams = `
apiVersion: v1
kind: List
items:
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: teams.example.com}
  spec:
    group: example.com
    scope: Cluster
    names: {plural: teams, singular: team, kind: Team}
    versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {members: {type: integer}}}
            status: {type: object, properties: {namespace: {type: string}}}
- {apiVersion: example.com/v1, kind: Team, metadata: {name: red}, spec: {members: 2}}
`

func teamKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Team"}
}

// A cluster-scoped custom resource without a Go type owns a Namespace.
func TestClusterScopedKind(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: teams}, func(t *testing.T, c *simulation.Cluster) {
		cluster := c.Connect("teams")
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "teams"})
		if err != nil {
			t.Fatal(err)
		}
		handle := func(ctx context.Context, team *unstructured.Unstructured) error {
			namespace := &corev1.Namespace{}
			namespace.Name = "team-" + team.GetName()
			if err := ownerref.SetController(ctx, writer, team, namespace); err != nil {
				return err
			}
			if _, err := client.Apply(ctx, writer, namespace); err != nil {
				return err
			}
			state := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"namespace": namespace.Name}}}
			state.SetGroupVersionKind(teamKind())
			state.SetName(team.GetName())
			_, err = client.Apply(ctx, writer, state, client.Subresource("status"))
			return err
		}
		teams, err := controller.New(controller.Config[*unstructured.Unstructured]{
			Name: "teams", Handler: handle,
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: teamKind()}),
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Run(teams)
		c.Settle()
		c.Expect(`{apiVersion: example.com/v1, kind: Team, metadata: {name: red}, status: {namespace: team-red}}`)
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: board, namespace: team-red}}`)
		simulation.Edit(c, "red", "", func(team *unstructured.Unstructured) { team.SetLabels(map[string]string{"a": "b"}) }, client.OfKind(teamKind()))
		if team := simulation.Get[*unstructured.Unstructured](c, "red", client.OfKind(teamKind())); team.GetLabels()["a"] != "b" {
			t.Errorf("the labels are %v", team.GetLabels())
		}
		simulation.Delete[*unstructured.Unstructured](c, "red", client.OfKind(teamKind()))
		c.Settle()
		c.Advance(time.Minute) // the namespace controller's delays
		simulation.ExpectGone[*unstructured.Unstructured](c, "red", client.OfKind(teamKind()))
		simulation.ExpectGone[*corev1.Namespace](c, "team-red")
		simulation.ExpectGone[*corev1.ConfigMap](c, "team-red/board")
	})
}

// A controller with owned children and a finalizer, and another one that polls. Both read one informer. They run in a
// manager with leader election, which is restarted in the middle.
func operators(t *testing.T, c *simulation.Cluster, outside *sync.Map, identity string) *manager.Manager {
	t.Helper()
	cluster := c.Connect("operators")
	configMaps, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: retrieveConfigMaps(cluster)})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "operators", Informers: []client.Informer{configMaps}})
	if err != nil {
		t.Fatal(err)
	}
	cleanup, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
		Client: writer, Name: "example.com/outside",
		Steps: []finalizer.Step[*corev1.ConfigMap]{{Name: "outside", Run: func(_ context.Context, cm *corev1.ConfigMap) error {
			outside.Delete(kube.KeyOf(cm))
			return nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	deploy := func(ctx context.Context, cm *corev1.ConfigMap) error {
		outside.Store(kube.KeyOf(cm), true)
		d := &appsv1.Deployment{}
		d.Namespace, d.Name = cm.Namespace, cm.Name
		if err := ownerref.SetController(ctx, writer, cm, d); err != nil {
			return err
		}
		labels := map[string]string{"app": cm.Name}
		d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: cm.Data["image"]}}
		_, err = client.Apply(ctx, writer, d)
		return err
	}
	deployer, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "deployer", Informer: configMaps, Handler: controller.Chain(deploy, middleware.Finalizer(cleanup, middleware.FinalizerOptions[*corev1.ConfigMap]{})), Sources: []controller.Source{source.Owned[*appsv1.Deployment](cluster)},
	})
	if err != nil {
		t.Fatal(err)
	}
	stamp := func(ctx context.Context, cm *corev1.ConfigMap) error {
		if cm.DeletionTimestamp != nil {
			return nil
		}
		secret := &corev1.Secret{Data: map[string][]byte{"hour": []byte(time.Now().UTC().Format("15"))}}
		secret.Namespace, secret.Name = cm.Namespace, cm.Name
		if _, err := client.Apply(ctx, writer, secret); err != nil {
			return err
		}
		return controller.RequeueAfter(time.Hour, "next hour")
	}
	stamper, err := controller.New(controller.Config[*corev1.ConfigMap]{Name: "stamper", Informer: configMaps, Handler: stamp})
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Config{
		LeaderElection: &leader.Config{Cluster: c.Connect("elector"), Namespace: "default", Name: "operators", Identity: identity},
		Runnables:      []manager.Runnable{{Runner: deployer}, {Runner: stamper}},
		IgnoreSignals:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The second process finds the changes of the time in which none ran.
func TestManagerIsRestarted(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: `{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}, data: {image: "shop:1"}}`}
	simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
		var outside sync.Map
		stop := c.Run(operators(t, c, &outside, "first"))
		c.Advance(20 * time.Second) // the duration of the lease: a new one is not held before
		c.Settle()
		c.Expect(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop}, status: {availableReplicas: 1}}`)
		if hour := string(simulation.Get[*corev1.Secret](c, "default/shop").Data["hour"]); hour != "00" {
			t.Errorf("the hour is %s", hour)
		}
		c.Advance(time.Hour)
		stop()
		simulation.Delete[*appsv1.Deployment](c, "default/shop")
		c.Advance(time.Hour)
		simulation.ExpectGone[*appsv1.Deployment](c, "default/shop")
		c.Run(operators(t, c, &outside, "second"))
		c.Advance(20 * time.Second)
		c.Settle()
		c.Expect(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop}, status: {availableReplicas: 1}}`)
		if hour := string(simulation.Get[*corev1.Secret](c, "default/shop").Data["hour"]); hour != "02" {
			t.Errorf("the hour is %s", hour)
		}
		simulation.Delete[*corev1.ConfigMap](c, "default/shop")
		c.Settle()
		simulation.ExpectGone[*corev1.ConfigMap](c, "default/shop")
		simulation.ExpectGone[*appsv1.Deployment](c, "default/shop")
		outside.Range(func(key, _ any) bool {
			t.Errorf("the outside object of %v is left", key)
			return true
		})
	})
}

func TestManifestsWithWrongTypes(t *testing.T) {
	t.Parallel()
	for manifest, want := range map[string]string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: no}}":    "YAML, document 1: metadata.namespace is false, want a text: quote it",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: 12}}":                  "YAML, document 1: metadata.name is 12, want a text: quote it",
		"{apiVersion: v1, kind: ConfigMap, metadata: a}":                           "YAML, document 1: metadata is a, want a map",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap}]}": "YAML, document 1, items[0]: ConfigMap without metadata.name",
		"{apiVersion: v1, kind: List, items: {}}":                                  "YAML, document 1: items of the List is not a list",
		"{apiVersion: v1, kind: List, items: [a]}":                                 "YAML, document 1, items[0]: not a Kubernetes object",
		"{apiVersion: v1, kind: List}":                                             "the YAML text has no object",
	} {
		t.Run(manifest, func(t *testing.T) {
			t.Parallel()
			output := failureOf(t, simulation.Config{}, func(_ testing.TB, c *simulation.Cluster) { c.Apply(manifest) })
			expectOutput(t, output, want)
		})
	}
}
