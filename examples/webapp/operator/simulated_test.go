package operator

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// everywhere runs story in memory and on the real cluster.
func everywhere(t *testing.T, story func(w *world)) {
	t.Helper()
	t.Run("memory", inMemory(story))
	t.Run("cluster", onCluster(story))
}

// inMemory returns a test that runs story in virtual time, with a world in memory.
func inMemory(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(newWorldInMemory(t)) })
	}
}

// onCluster returns a test that runs story with a world in the real cluster. It is skipped if there is none.
func onCluster(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) { story(newWorldIn(t, exampletest.RESTConfig(t))) }
}

// inMemoryWithV2 is inMemory with WebApps that are stored in v2, so that all WebApps of the operator are converted.
func inMemoryWithV2(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(newWorldWithV2(t)) })
	}
}

// newWorldInMemory returns a world with a cluster in memory. The caller is in a bubble of testing/synctest.
func newWorldInMemory(t *testing.T) *world {
	t.Helper()
	c := simulation.New(t, simulation.Config{YAML: string(v1.CRD), Types: []func(*runtime.Scheme) error{v1.AddToScheme}})
	return newWorldIn(t, c.RESTConfig("webapp-operator"))
}

// newWorldWithV2 is newWorldInMemory with the definition with two versions.
func newWorldWithV2(t *testing.T) *world {
	t.Helper()
	types := []func(*runtime.Scheme) error{v1.AddToScheme, v2.AddToScheme}
	cluster, err := kube.Connect(&rest.Config{Host: "https://simulation.invalid"}, types...) // only for its types
	if err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{hooks.Conversion()}})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crd.Parse(v2.CRD)
	if err != nil {
		t.Fatal(err)
	}
	if err := crd.SetConversions(server.Conversions(admissionregistrationv1.WebhookClientConfig{URL: new("https://webhooks.invalid")}), definitions...); err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(definitions[0])
	if err != nil {
		t.Fatal(err)
	}
	c := simulation.New(t, simulation.Config{YAML: string(manifest), Types: types})
	c.HandleWebhooks(server)
	return newWorldIn(t, c.RESTConfig("webapp-operator"))
}
