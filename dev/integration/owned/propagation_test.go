package owned

import (
	"context"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/owned"
)

// database returns a StatefulSet with a volume of this size.
func (e env) database(size string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db:1"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}},
				},
			}},
		},
	}
}

// The error about a StatefulSet whose volumes should grow names the field, and how its Pods stay.
func TestImmutableErrorNamesField(t *testing.T) { anyCluster.Test(t, testImmutableErrorNamesField) }

func testImmutableErrorNamesField(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	set := e.set(func(c *owned.Config) { c.Kinds = append(c.Kinds, appsv1.SchemeGroupVersion.WithKind("StatefulSet")) })
	app := e.app("web")
	e.apply(set, app, owned.Of(e.database("1Gi"))...)
	grown := e.database("2Gi")
	grown.Spec.Template.Spec.Containers[0].Image = "db:2" // may change
	_, err := set.Apply(t.Context(), app, owned.Of(grown)...)
	if want := "/db: spec.volumeClaimTemplates[0].spec.resources.requests.storage cannot be changed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v; want %q", err, want)
	}
	if !strings.Contains(err.Error(), "DeletePropagationOrphan") {
		t.Error(err)
	}
}

// Each child is recreated with its own propagation, and every other deletion has that of the set.
func TestPropagationBelongsToChild(t *testing.T) { anyCluster.Test(t, testPropagationBelongsToChild) }

func testPropagationBelongsToChild(t *testing.T) {
	t.Helper()
	e := newEnv(t)
	app := e.app("web")
	deleted := map[string]metav1.DeletionPropagation{}
	watching := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				deleted[r.Key.Name] = *r.Delete.PropagationPolicy
				return next(ctx, r)
			}
		}, client.VerbDelete)}
	}))(t)
	set := e.set(func(c *owned.Config) { c.Client = watching })
	children := func(colour string) (all []owned.Child) {
		for name, propagation := range map[string]metav1.DeletionPropagation{"first": metav1.DeletePropagationOrphan, "second": ""} {
			config := e.configMap(name, "colour", colour)
			config.Immutable = new(true)
			all = append(all, owned.Child{Object: config, Propagation: propagation, Recreate: true})
		}
		return all
	}
	e.apply(set, app, append(children("blue"), owned.Of(e.configMap("old"))...)...)
	e.apply(set, app, append(children("red"), owned.Of(e.configMap("old"))...)...)
	clustertest.Eventually(t, func() string { // the garbage collector orphans the dependents of the first one
		e.apply(set, app, children("red")...)
		if e.get(e.key("old")) != nil {
			return "old is not pruned"
		}
		return ""
	})
	want := map[string]metav1.DeletionPropagation{
		"first": metav1.DeletePropagationOrphan, "second": metav1.DeletePropagationBackground, "old": metav1.DeletePropagationBackground,
	}
	if !maps.Equal(deleted, want) {
		t.Errorf("deleted with %v, want %v", deleted, want)
	}
}
