package operator

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// inMemory returns a test that runs story in virtual time, with a world in memory.
func inMemory(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(newWorldInMemory(t)) })
	}
}

// onCluster returns a test that runs story with a world in the real cluster.
func onCluster(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) { story(newWorld(t)) }
}

// newWorldInMemory is newWorld with a cluster in memory. The caller is in a bubble of testing/synctest.
func newWorldInMemory(t *testing.T) *world {
	t.Helper()
	c := simulation.New(t, simulation.Config{YAML: string(v1.CRD), Types: []func(*runtime.Scheme) error{v1.AddToScheme}})
	return newWorldIn(t, c.RESTConfig("webapp-operator"))
}
