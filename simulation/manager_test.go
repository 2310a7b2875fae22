package simulation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Two replicas of a program with a manager: the second one works after the first one has stopped.
func TestManagers(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		run := func(identity string) (stop func()) {
			m, err := manager.New(manager.Config{
				LeaderElection: &leader.Config{Cluster: c.Connect("copier"), Namespace: "default", Name: "copier", Identity: identity},
				Runnables:      []manager.Runnable{{Runner: newCopier(t, c)}},
				IgnoreSignals:  true,
			})
			if err != nil {
				t.Fatal(err)
			}
			stop = c.Run(m)
			c.Advance(20 * time.Second) // the duration of the lease: a new one is not held before
			if err := m.Ready(); err != nil {
				t.Errorf("%s: %v", identity, err)
			}
			return stop
		}
		stop := run("first")
		run("second")
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}, data: {text: even keel}}`)
		c.Settle()
		if secret := simulation.Get[*corev1.Secret](c, "default/motto"); string(secret.Data["text"]) != "even keel" {
			t.Errorf("the first replica wrote %q", secret.Data)
		}
		stop()
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}, data: {text: changed}}`)
		c.Advance(5 * time.Second) // the second replica finds the released lease
		c.Settle()
		if secret := simulation.Get[*corev1.Secret](c, "default/motto"); string(secret.Data["text"]) != "changed" {
			t.Errorf("the second replica wrote %q", secret.Data)
		}
	})
}

// The manager installs the definition of the operator's kind before the operator starts, and stops the recorder of Events
// after it.
func TestOperatorWithItsDefinitionAndEvents(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		cluster := c.Connect("greeter")
		writer, err := client.New(client.Config{Cluster: cluster, FieldOwner: "greeter"})
		if err != nil {
			t.Fatal(err)
		}
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Greeting"}
		events, err := event.New(event.Config{Cluster: cluster, Controller: "greeter"})
		if err != nil {
			t.Fatal(err)
		}
		greeter, err := controller.New(controller.Config[*unstructured.Unstructured]{
			Name:      "greeter",
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: kind}),
			Handler: func(_ context.Context, greeting *unstructured.Unstructured) error {
				events.Normal(greeting, "Greeted", "Greet", "good morning")
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definition.Name = "greetings.example.com"
		definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: "greetings", Singular: "greeting", ListKind: "GreetingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		}
		// region operator
		install := func(ctx context.Context) error {
			_, err := crd.Ensure(ctx, writer, []*apiextensionsv1.CustomResourceDefinition{definition})
			return err
		}
		m, err := manager.New(manager.Config{
			Runnables: []manager.Runnable{
				{Name: "definitions", Runner: manager.RunFunc(install), Group: manager.Caches, Task: true, OnFailure: manager.Restart},
				{Name: "events", Runner: events, Group: manager.Caches}, // stops after the controller, and sends its last Events
				{Runner: greeter},
			},
			IgnoreSignals: true,
		})
		// endregion
		if err != nil {
			t.Fatal(err)
		}
		failed := false
		c.Intercept(func(r simulation.Request, _ func()) error { // the first attempt fails
			if r.Resource.Resource == "customresourcedefinitions" && r.IsWrite() && !failed {
				failed = true
				return context.DeadlineExceeded
			}
			return nil
		})
		stop := c.Run(m)
		c.Settle()
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
		c.Apply(`{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hello}}`)
		c.Settle()
		stop()
		if text := c.Events("default/hello"); !strings.Contains(strings.Join(text, ""), "good morning") {
			t.Errorf("the Events are %q", text)
		}
		if !failed {
			t.Error("the definition was not written")
		}
	})
}
