package owned

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// withDefaultName returns a controller of owners of a kind with a set of the default name.
func (e env) withDefaultName(name string, kind schema.GroupVersionKind, child string, runs *atomic.Int64) controller.Config[*unstructured.Unstructured] {
	e.Helper()
	owners := must(informer.New(informer.Config[*unstructured.Unstructured]{
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](e.cluster, kube.Selection{Kind: kind, Namespaces: []string{e.namespace}}),
		Logger:    clustertest.Logger(e),
	}))(e)
	children := must(watched.New(watched.Config{
		Client: client.Config{Cluster: e.cluster, FieldOwner: "operator"},
		Kinds:  []watched.Kind{watched.Of[*corev1.ConfigMap]()},
	}))(e)
	return controller.Config[*unstructured.Unstructured]{
		Name: name, Informer: owners, Sources: children.Sources, Logger: clustertest.Logger(e),
		Handler: func(ctx context.Context, owner *unstructured.Unstructured) error {
			runs.Add(1)
			_, err := children.Set.Apply(ctx, owner, owned.Of(e.configMap(child, "colour", "blue"))...)
			return err
		},
	}
}

// Two kinds of one operator may have sets of one name, and owners of one name: a change of a child runs its own owner.
func TestOwnerKindIsPartOfSetName(t *testing.T) { anyCluster.Test(t, testOwnerKindIsPartOfSetName) }

func testOwnerKindIsPartOfSetName(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	gizmo := schema.GroupVersionKind{Group: "owned.example.com", Version: "v1", Kind: "Gizmo"}
	e.define(gizmo, "gizmos", "Namespaced")
	var apps, gizmos atomic.Int64
	clustertest.Run(t, e.withDefaultName("apps", appKind, "of-app", &apps))
	clustertest.Run(t, e.withDefaultName("gizmos", gizmo, "of-gizmo", &gizmos))
	app := e.app("web")
	other := app.DeepCopy()
	other.SetGroupVersionKind(gizmo)
	other.SetUID("")
	other.SetResourceVersion("")
	must(client.Create(t.Context(), e.c, other))(t)
	clustertest.Eventually(t, func() string {
		if e.get(e.key("of-app")) == nil || e.get(e.key("of-gizmo")) == nil {
			return "the children are missing"
		}
		return ""
	})
	for round := range 5 {
		before := apps.Load()
		e.merge(e.configMap("of-gizmo"), `{"data":{"colour":"red"}}`)
		clustertest.Eventually(t, func() string {
			if e.get(e.key("of-gizmo")).Data["colour"] != "blue" {
				return "not reverted"
			}
			return ""
		})
		if after := apps.Load(); after != before && round > 0 { // round 0: the first runs may be under way
			t.Errorf("round %d: a change of the other kind's child ran the owner %d times", round, after-before)
		}
	}
}

// Two sets of one name for one kind would overwrite each other without end. The second one is an error.
func TestSecondSetOfOneNameIsRejected(t *testing.T) {
	anyCluster.Test(t, testSecondSetOfOneNameIsRejected)
}

func testSecondSetOfOneNameIsRejected(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	var runs atomic.Int64
	ctrl := must(controller.New(e.withDefaultName("first", appKind, "a", &runs)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(ctx) }() // waited for below
	e.app("web")
	clustertest.Eventually(t, func() string {
		if e.get(e.key("a")) == nil {
			return "the child is missing"
		}
		return ""
	})
	second := must(controller.New(e.withDefaultName("second", appKind, "b", &runs)))(t)
	err := second.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), `set "operator"`) || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("the error is %v", err)
	}
	if e.get(e.key("b")) != nil {
		t.Error("the second set has created a child")
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// After the end of the first one, the name is free.
	third := must(controller.New(e.withDefaultName("third", appKind, "b", &runs)))(t)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { ended <- third.Run(ctx) }() // waited for below
	clustertest.Eventually(t, func() string {
		if e.get(e.key("b")) == nil {
			return "the child is missing"
		}
		return ""
	})
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
