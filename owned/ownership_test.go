package owned

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func configMapKind() schema.GroupKind { return schema.GroupKind{Kind: "ConfigMap"} }

func TestMarkKeepsOtherLabels(t *testing.T) {
	t.Parallel()
	set := &Set{config: Config{Name: "webapp"}}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	given := map[string]string{"app": "web", LabelSet: "another"}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "c", Labels: given}}
	set.mark(configMapKind(), owner, child, 0)
	if want := map[string]string{"app": "web", LabelSet: "webapp", labelOwnerUID: "u1"}; !maps.Equal(child.Labels, want) {
		t.Errorf("labels %v", child.Labels)
	}
	if want := map[string]string{annotationOwner: "shop/web", annotationOwnerKind: "ConfigMap", annotationChild: "b/c"}; !maps.Equal(child.Annotations, want) {
		t.Errorf("annotations %v", child.Annotations)
	}
	if given[LabelSet] != "another" {
		t.Error("a map that may be shared was changed")
	}
	if ownership, holder := set.ownershipOf(configMapKind(), owner, child); ownership != own {
		t.Errorf("what was marked is %s's", holder)
	}
}

func TestOwnershipOf(t *testing.T) {
	t.Parallel()
	set := &Set{config: Config{Name: "webapp"}}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	controlled := func(uid types.UID, set string) *corev1.ConfigMap {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: uid, Controller: new(true)},
		}}}
		if set != "" {
			child.Labels = map[string]string{LabelSet: set, labelOwnerUID: string(uid)}
		}
		return child
	}
	byLabels := func(kind string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "c", Labels: map[string]string{LabelSet: "webapp", labelOwnerUID: "u2"},
			Annotations: map[string]string{annotationOwner: "shop/web", annotationOwnerKind: kind, annotationChild: "shop/c"},
		}}
	}
	for name, test := range map[string]struct {
		child    *corev1.ConfigMap
		want     ownershipState
		original string
	}{
		"child":                                {controlled("u1", "webapp"), own, ""},
		"child without labels":                 {controlled("u1", ""), own, ""},
		"child of another set of the owner":    {controlled("u1", "another"), foreign, "set another of the same owner"},
		"child of another owner":               {controlled("u2", "webapp"), foreign, "ConfigMap web (uid u2)"},
		"child of another owner without label": {controlled("u2", ""), foreign, "ConfigMap web (uid u2)"},
		"child of an earlier owner":            {byLabels("ConfigMap"), orphan, "an earlier shop/web (uid u2)"},
		"child of an owner of another kind":    {byLabels("Gizmo.example.com"), foreign, "set webapp of shop/web (uid u2)"},
	} {
		if got, original := set.ownershipOf(configMapKind(), owner, test.child); got != test.want || original != test.original {
			t.Errorf("%s: %d, %q", name, got, original)
		}
	}
}

func TestWaveOf(t *testing.T) {
	t.Parallel()
	for noted, want := range map[string]int{"": 0, "3": 3, "-1": -1, "first": 0, "1.5": 0, "99999999999999999999": 0} {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationWave: noted}}}
		if got := waveOf(child); got != want {
			t.Errorf("%q: %d", noted, got)
		}
	}
	if got := waveOf(&corev1.ConfigMap{}); got != 0 {
		t.Errorf("nothing noted: %d", got)
	}
}
