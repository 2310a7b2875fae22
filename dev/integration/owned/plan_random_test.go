package owned

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// TestRandomPlansMatchApply compares random plans with the apply that follows: with children, orphans, objects of a
// former manager, a user's edits, immutable fields, and different configs of the set.
func TestRandomPlansMatchApply(t *testing.T) {
	e := newEnv(t)
	kinds := []schema.GroupVersionKind{configMapKind, podTemplateKind, serviceKind}
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 1))
		app := e.app(fmt.Sprint("web-", seed))
		configure := func(c *owned.Config) {
			c.Kinds = kinds
			c.AdoptOrphans = random.IntN(2) == 0
			if random.IntN(2) == 0 {
				c.ReportConflicts = true
			}
			if random.IntN(2) == 0 {
				c.Former.Managers = []string{"old"}
				c.Former.Children = "!" + owned.LabelSet
			}
		}
		set := e.set(configure)
		desired := func() []kube.Object {
			var all []kube.Object
			p := fmt.Sprint("s", seed, "-")
			if random.IntN(4) > 0 {
				all = append(all, e.configMap(p+"a", "x", fmt.Sprint(random.IntN(3)), fmt.Sprint("k", random.IntN(3)), "1"))
			}
			if random.IntN(4) > 0 {
				all = append(all, e.configMap(p+"b", "x", fmt.Sprint(random.IntN(3))))
			}
			if random.IntN(4) > 0 {
				d := e.podTemplate([]string{"web", "side"}[:1+random.IntN(2)]...)
				d.Name = p + "d"
				all = append(all, d)
			}
			if random.IntN(4) > 0 {
				s := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: p + "s"},
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"a": "b"},
						Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(int32(8080 + random.IntN(2)))}},
					},
				}
				if random.IntN(2) == 0 {
					s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 9090})
				}
				if random.IntN(3) == 0 {
					s.Spec.ClusterIP = "None" // an immutable field
				}
				all = append(all, s)
			}
			return all
		}
		for _, obj := range desired() { // existing objects
			switch random.IntN(4) {
			case 0: // orphan
				must(client.Create(t.Context(), e.c, obj, client.FieldOwner("user")))(t)
			case 1:
				byUpdate(e, app, obj, "old")
			default:
				must(e.set(func(c *owned.Config) { c.Prune, c.Kinds = owned.PruneNever, kinds }).Apply(t.Context(), app, owned.Of(obj)...))(t)
			}
		}
		for _, obj := range desired() { // a user edits
			if random.IntN(3) == 0 {
				patch := `{"metadata":{"labels":{"edited":"yes","evenkeel.dev/set":null}}}`
				if _, ok := obj.(*corev1.ConfigMap); ok {
					patch = `{"data":{"x":"edited"}}`
				}
				// The patch fails for objects that do not exist.
				_, _ = client.Patch(t.Context(), e.c, obj, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("user"))
			}
		}
		children := owned.Of(desired()...)
		if random.IntN(2) == 0 {
			children = recreated(desired()...)
		}
		plan, planErr := set.Plan(t.Context(), app, children...)
		report, err := set.Apply(t.Context(), app, children...)
		describe := func(results []owned.Result) []string {
			var all []string
			for _, r := range results {
				if r.Waits != "" {
					continue // a plan contains the outcome after the wait
				}
				line := fmt.Sprintf("%s: %s", r, r.Outcome)
				if r.Outcome == owned.Updated {
					for _, change := range r.Changed {
						line += " " + change.String()
					}
				}
				if r.Err != nil {
					line += " ERR"
				}
				all = append(all, line)
			}
			return all
		}
		a, b := describe(plan.Results), describe(report.Results)
		if !slices.Equal(a, b) {
			t.Errorf("seed %d: planned (%v)\n  %s\ndone (%v)\n  %s", seed, planErr, strings.Join(a, "\n  "), err, strings.Join(b, "\n  "))
		}
	}
}
