package owned

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

// If a child cannot be applied until a user changes something, the owner is stalled, whether the handler summarizes the
// report, or returns the error and middleware.FailureConditions sets the conditions.
func TestOwnerOfInvalidChildIsStalled(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(func(c *owned.Config) { c.Kinds = append(c.Kinds, appKind) }), e.app("web")
	frozen := e.configMap("frozen", "colour", "blue")
	frozen.Immutable = new(true)
	e.apply(set, app, owned.Of(frozen)...)
	changed := frozen.DeepCopy()
	changed.Data["colour"] = "red"
	must(client.Create(t.Context(), e.c, e.configMap("foreign")))(t)
	mistyped := func(kind schema.GroupVersionKind, content map[string]any) kube.Object {
		obj := &unstructured.Unstructured{Object: content}
		obj.SetGroupVersionKind(kind)
		obj.SetNamespace(e.namespace)
		obj.SetName("mistyped")
		return obj
	}
	for name, test := range map[string]struct {
		child kube.Object
		says  string
	}{
		"foreign":   {e.configMap("foreign"), "already exists"},
		"1.8 MB":    {mistyped(appKind, map[string]any{"spec": strings.Repeat("x", 1_800_000)}), "too large"},
		"2.5 MB":    {mistyped(appKind, map[string]any{"spec": strings.Repeat("x", 2_500_000)}), "too large"},
		"4 MB":      {mistyped(appKind, map[string]any{"spec": strings.Repeat("x", 4_000_000)}), "too large"},
		"immutable": {changed, "cannot be changed"},
		"mistyped":  {mistyped(serviceKind, map[string]any{"spec": map[string]any{"ports": "80"}}), "does not match the schema"},
		"unknown":   {mistyped(serviceKind, map[string]any{"spec": map[string]any{"prots": []any{}}}), "does not match the schema"},
		"duplicate": {mistyped(serviceKind, map[string]any{"spec": map[string]any{"ports": []any{
			map[string]any{"port": int64(80)}, map[string]any{"port": int64(80)},
		}}}), "does not match the schema"},
		"invalid": {mistyped(serviceKind, map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(99999)}}}}), "Invalid"},
	} {
		report, err := set.Apply(t.Context(), app, owned.Of(test.child)...)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.says)) || !retryrules.Persistent(err) {
			t.Errorf("%s: the error is %v, persistent: %t", name, err, retryrules.Persistent(err))
			continue
		}
		if class := retry.Classify(err); class == retry.Transient || class == retry.Default {
			t.Errorf("%s: the class is %q: it is retried as if it would pass", name, class)
		}
		var summarised, failed []metav1.Condition
		status.Summarize(&summarised, 1, report.States()...)
		middleware.FailureConditions(func(kube.Object) *[]metav1.Condition { return &failed })(app, err)
		for how, conditions := range map[string][]metav1.Condition{"summarised": summarised, "failed": failed} {
			if !meta.IsStatusConditionTrue(conditions, "Stalled") || meta.IsStatusConditionTrue(conditions, "Reconciling") {
				t.Errorf("%s, %s: %+v", name, how, conditions)
			}
		}
	}
	// An error that occurs before any request makes the owner stalled or not, but never ready.
	report, err := e.set().Apply(t.Context(), app, owned.Of(mistyped(appKind, map[string]any{}))...)
	var conditions []metav1.Condition
	status.Summarize(&conditions, 1, report.States()...)
	if err == nil || meta.IsStatusConditionTrue(conditions, "Ready") || controller.OutcomeOf(err) != controller.OutcomeError {
		t.Errorf("%v: %+v", err, conditions)
	}
}
