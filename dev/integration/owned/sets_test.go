package owned

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/owned"
)

// Two sets of one owner never change or delete each other's children: neither with an owner reference, nor in another
// namespace, where owner references are not possible.
func TestSetsOfOneOwnerKeepEachOthersChildren(t *testing.T) {
	e := newEnv(t)
	far, app := clustertest.Namespace(t, e.c), e.app("web")
	named := func(name string) *owned.Set {
		return e.set(func(c *owned.Config) {
			// As two controllers with different field owners.
			c.Name, c.Namespaces = name, []string{far}
			c.Client = must(e.c.With(func(config *client.Config) { config.FieldOwner = name }))(t)
		})
	}
	first, second := named("first"), named("second")
	for _, namespace := range []string{e.namespace, far} {
		shared := func(ownerName string) *corev1.ConfigMap { return configMapIn(namespace, "shared", "of", ownerName) }
		e.apply(first, app, owned.Of(shared("the first"))...)
		for _, child := range []owned.Child{
			{Object: shared("the second")}, {Object: shared("the second"), CreateOnly: true}, {Object: shared("the second"), Recreate: true},
		} {
			report, err := second.Apply(t.Context(), app, child)
			e.want(report.Results, "ConfigMap shared: foreign")
			if _, ok := errors.AsType[*owned.ForeignError](err); !ok {
				t.Errorf("the error is %v", err)
			}
			plan, _ := second.Plan(t.Context(), app, child)
			e.want(plan.Results, "ConfigMap shared: foreign")
		}
		e.apply(second, app) // prunes the children of the second set
		must(second.Delete(t.Context(), app))(t)
		e.want(e.apply(first, app, owned.Of(shared("the first"))...).Results, "ConfigMap shared: unchanged")
		e.apply(first, app)
	}
}
