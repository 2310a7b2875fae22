package owned

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// TestChildrenRecoverFromUserChanges makes one to three random changes to children at once, as a user: edits, forced
// applies, removal of the set's labels and annotations, owner references or managedFields, deletion, and creation
// without the set's labels and annotations. After each round the children must match the desired state, without a
// resync.
func TestChildrenRecoverFromUserChanges(t *testing.T) {
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		other := clustertest.Namespace(t, e.c)
		apps := e.apps()
		kinds := must(watched.New(watched.Config{
			Client: client.Config{Cluster: e.cluster, FieldOwner: "webapp-operator"},
			Set:    owned.Config{Name: "webapp", Namespaces: []string{other}, AdoptOrphans: true},
			Kinds:  []watched.Kind{watched.Of[*corev1.ConfigMap]()},
		}))(t)
		desired := func() []*corev1.ConfigMap {
			return []*corev1.ConfigMap{e.configMap("near", "colour", "blue", "size", "1"), configMapIn(other, "far", "colour", "blue", "size", "1")}
		}
		clustertest.Run(t, controller.Config[*unstructured.Unstructured]{
			Name: "webapp", Informer: apps, Sources: kinds.Sources,
			Handler: func(ctx context.Context, app *unstructured.Unstructured) error {
				_, err := kinds.Set.Apply(ctx, app, owned.Of(desired()[0], desired()[1])...)
				return err
			},
		})
		app := e.app("web")
		differs := func() string {
			for n, want := range desired() {
				live := e.get(kube.KeyOf(want))
				switch {
				case live == nil || live.DeletionTimestamp != nil:
					return want.Name + " is missing"
				case live.Data["colour"] != "blue" || live.Data["size"] != "1":
					return fmt.Sprint(want.Name, " has ", live.Data)
				case live.Labels[owned.LabelSet] != "webapp" || live.Labels["evenkeel.dev/owner-uid"] != string(app.GetUID()):
					return fmt.Sprint(want.Name, " has the labels ", live.Labels)
				case live.Annotations["evenkeel.dev/child"] != kube.KeyOf(want).String() || live.Annotations["evenkeel.dev/configuration"] == "":
					return fmt.Sprint(want.Name, " has the annotations ", live.Annotations)
				case n == 0 && (metav1.GetControllerOf(live) == nil || metav1.GetControllerOf(live).UID != app.GetUID()):
					return want.Name + " has no owner"
				}
			}
			return ""
		}
		clustertest.Eventually(t, differs)
		merge := func(patch string) func(*corev1.ConfigMap) error {
			return func(config *corev1.ConfigMap) error {
				_, err := client.Patch(t.Context(), e.c, config, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("user"))
				return err
			}
		}
		acts := map[string]func(*corev1.ConfigMap) error{
			"edit":              merge(`{"data":{"colour":"red"}}`),
			"remove a field":    merge(`{"data":{"size":null}}`),
			"remove all fields": merge(`{"data":null}`),
			"add a field":       merge(`{"data":{"note":"of the user"}}`),
			"remove the set":    merge(`{"metadata":{"labels":{"evenkeel.dev/set":null}}}`),
			"remove the uid":    merge(`{"metadata":{"labels":{"evenkeel.dev/owner-uid":null}}}`),
			"remove labels":     merge(`{"metadata":{"labels":null}}`),
			"remove annotation": merge(`{"metadata":{"annotations":{"evenkeel.dev/configuration":null}}}`),
			"remove all marks":  merge(`{"metadata":{"annotations":null,"labels":null,"ownerReferences":null}}`),
			"remove the owner":  merge(`{"metadata":{"ownerReferences":null}}`),
			"clear managers":    merge(`{"metadata":{"managedFields":[{}]}}`),
			"delete":            func(config *corev1.ConfigMap) error { return client.Delete(t.Context(), e.c, config) },
			"take by force": func(config *corev1.ConfigMap) error {
				config.Data = map[string]string{"colour": "green", "size": "2"}
				_, err := client.Apply(t.Context(), e.c, config, client.FieldOwner("rival"), client.Force())
				return err
			},
			"create anew": func(config *corev1.ConfigMap) error {
				if err := client.Delete(t.Context(), e.c, config); err != nil {
					return err
				}
				config.Data = map[string]string{"colour": "of the user"}
				_, err := client.Create(t.Context(), e.c, config, client.FieldOwner("user"))
				return err
			},
		}
		names := slices.Sorted(maps.Keys(acts))
		random := rand.New(rand.NewPCG(11, 22))
		for round := range 60 {
			var did []string
			for range 1 + random.IntN(3) {
				child, name := desired()[random.IntN(2)], names[random.IntN(len(names))]
				child.Data = nil
				// The controller may be faster: the object then does not exist, or exists already.
				did = append(did, fmt.Sprint(name, " ", child.Name, ": ", acts[name](child)))
			}
			clustertest.Eventually(t, func() string {
				if text := differs(); text != "" {
					return fmt.Sprintf("round %d, after %q: %s", round, did, text)
				}
				return ""
			})
		}
	})
}
