package predicate_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
)

// changedPredicates returns the predicates that compare two states. They treat Listed, Added, Deleted and UIDs in the
// same way.
func changedPredicates() map[string]informer.Predicate {
	return map[string]informer.Predicate{
		"generation":           predicate.GenerationChanged(),
		"resource version":     predicate.Changed(kube.ChangedResourceVersion),
		"labels":               predicate.Changed(kube.ChangedLabels),
		"annotations":          predicate.Changed(kube.ChangedAnnotations),
		"status":               predicate.StatusChanged[*corev1.Pod](),
		"status, unstructured": predicate.StatusChanged[*unstructured.Unstructured](),
		"spec":                 predicate.SpecChanged[*corev1.Pod](),
	}
}

// passing returns the names of the predicates that pass a change.
func passing(c informer.Change, predicates map[string]informer.Predicate) []string {
	var names []string
	for name, passes := range predicates {
		if passes(c) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Every write also changes the resource version.
func TestChangedPassesChangesOfItsField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*corev1.Pod)
		want []string // and "resource version"
	}{
		"managed fields": {func(p *corev1.Pod) {
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		}, nil},
		"spec and generation": {func(p *corev1.Pod) { p.Spec.NodeName = "node-2"; p.Generation++ }, []string{"generation", "spec"}},
		"spec":                {func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }, []string{"spec"}},
		"generation":          {func(p *corev1.Pod) { p.Generation++ }, []string{"generation"}},
		"status":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, []string{"status", "status, unstructured"}},
		"status removed":      {func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, []string{"status", "status, unstructured"}},
		"label value":         {func(p *corev1.Pod) { p.Labels["app"] = "api" }, []string{"labels"}},
		"label added":         {func(p *corev1.Pod) { p.Labels["x"] = "" }, []string{"labels"}},
		"labels removed":      {func(p *corev1.Pod) { p.Labels = nil }, []string{"labels"}},
		"annotation value":    {func(p *corev1.Pod) { p.Annotations["note"] = "z" }, []string{"annotations"}},
		"annotations removed": {func(p *corev1.Pod) { p.Annotations = nil }, []string{"annotations"}},
		"finalizer added":     {func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.com/b") }, nil},
		"finalizers removed":  {func(p *corev1.Pod) { p.Finalizers = nil }, nil},
		"owner replaced":      {func(p *corev1.Pod) { p.OwnerReferences[0].Name = "b" }, nil},
		"controller becomes plain owner": {func(p *corev1.Pod) {
			p.OwnerReferences[0].Controller = new(false)
		}, nil},
		"owners removed": {func(p *corev1.Pod) { p.OwnerReferences = nil }, nil},
		"deletion started, as the API server writes it": {func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1790000000, 0)}
			p.DeletionGracePeriodSeconds = new(int64(0))
			p.Generation++
		}, []string{"generation"}},
		"last finalizer removed, empty list": {func(p *corev1.Pod) { p.Finalizers = p.Finalizers[:0] }, nil},
		"labels and status": {func(p *corev1.Pod) {
			p.Labels["app"] = "api"
			p.Status.Message = "x"
		}, []string{"labels", "status", "status, unstructured"}},
	}
	for format, encode := range encodings() {
		for name, test := range tests {
			t.Run(format+"/"+name, func(t *testing.T) {
				t.Parallel()
				predicates := changedPredicates()
				if format == "protobuf" {
					delete(predicates, "status, unstructured") // see the next test
				}
				want := slices.DeleteFunc(append([]string{"resource version"}, test.want...), func(name string) bool {
					return predicates[name] == nil
				})
				slices.Sort(want)
				before, after := encode(t, newPod()), encode(t, changedPod(test.edit))
				got := passing(change(informer.Updated, before, after), predicates)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("predicates that pass (-want +got):\n%s", diff)
				}
				back := passing(change(informer.Updated, after, before), predicates)
				if diff := cmp.Diff(want, back); diff != "" {
					t.Errorf("predicates that pass the reverse update (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// For unstructured objects the status field of the protobuf is unknown: every change outside metadata passes.
func TestStatusChangedWithoutGoTypePassesSpecChanges(t *testing.T) {
	t.Parallel()
	passes := predicate.StatusChanged[*unstructured.Unstructured]()
	before := encode(t, newPod())
	spec := encode(t, changedPod(func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }))
	labels := encode(t, changedPod(func(p *corev1.Pod) { p.Labels["app"] = "api" }))
	if !passes(change(informer.Updated, before, spec)) {
		t.Error("StatusChanged drops a change that may be in the status")
	}
	if passes(change(informer.Updated, before, labels)) {
		t.Error("StatusChanged passes a change of the metadata")
	}
}

func TestChangedPassesChangesWithoutBothStates(t *testing.T) {
	t.Parallel()
	all := slices.Sorted(maps.Keys(changedPredicates()))
	for format, encode := range encodings() {
		pod := encode(t, newPod())
		second := newPod()
		second.UID = "uid-2"
		recreated := encode(t, second)
		for name, c := range map[string]informer.Change{
			"listed":                       change(informer.Listed, nil, pod),
			"added":                        change(informer.Added, nil, pod),
			"deleted":                      change(informer.Deleted, pod, nil),
			"deleted and created again":    change(informer.Updated, pod, recreated),
			"updated, old state unknown":   change(informer.Updated, nil, pod),
			"updated, new state unknown":   change(informer.Updated, pod, nil),
			"updated, both states unknown": {Type: informer.Updated},
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				t.Parallel()
				if diff := cmp.Diff(all, passing(c, changedPredicates())); diff != "" {
					t.Errorf("predicates that pass (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestChangedDropsUpdateWithoutChange(t *testing.T) {
	t.Parallel()
	for format, encode := range encodings() {
		predicates := changedPredicates()
		if got := passing(change(informer.Updated, encode(t, newPod()), encode(t, newPod())), predicates); len(got) > 0 {
			t.Errorf("%s: these pass: %v", format, got)
		}
	}
}

// A ConfigMap always has generation 0.
func TestGenerationChangedPassesKindsWithoutGenerations(t *testing.T) {
	t.Parallel()
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"}, Data: map[string]string{"a": "1"}}
	after := before.DeepCopy()
	after.ResourceVersion, after.Labels = "2", map[string]string{"a": "b"}
	c := change(informer.Updated, encode(t, before), encode(t, after))
	if !predicate.GenerationChanged()(c) {
		t.Error("GenerationChanged drops an update of a kind without generations")
	}
	if predicate.SpecChanged[*corev1.ConfigMap]()(c) {
		t.Error("SpecChanged passes a change of the labels")
	}
	after.Data = map[string]string{"key": "value"}
	if !predicate.SpecChanged[*corev1.ConfigMap]()(change(informer.Updated, encode(t, before), encode(t, after))) {
		t.Error("SpecChanged drops a change of the data")
	}
}

// A metadata-only informer cannot detect changes of the status or the spec.
func TestContentPredicatesPassMetadataUpdates(t *testing.T) {
	t.Parallel()
	metadata := func(version string) *metav1.PartialObjectMetadata {
		pod := newPod()
		pod.ResourceVersion = version
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: pod.ObjectMeta,
		}
	}
	for format, encode := range map[string]func(kube.Object) *wire.Object{
		"protobuf": func(obj kube.Object) *wire.Object { return encode(t, obj) },
		"JSON":     func(obj kube.Object) *wire.Object { return encode(t, toUnstructured(t, obj)) },
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			c := change(informer.Updated, encode(metadata("1")), encode(metadata("2")))
			for name, passes := range map[string]informer.Predicate{
				"status":                          predicate.StatusChanged[*corev1.Pod](),
				"spec":                            predicate.SpecChanged[*corev1.Pod](),
				"status of metadata":              predicate.StatusChanged[*metav1.PartialObjectMetadata](),
				"status of a kind without status": predicate.StatusChanged[*corev1.ConfigMap](),
			} {
				if !passes(c) {
					t.Errorf("%s: dropped an update of metadata", name)
				}
			}
			if predicate.Changed(kube.ChangedLabels)(c) {
				t.Error("Changed(ChangedLabels) passes an update without changed labels")
			}
		})
	}
}

// A custom resource without a status is not metadata-only: changes of its spec must not pass.
func TestStatusChangedDropsSpecChangeWithoutStatus(t *testing.T) {
	t.Parallel()
	website := func(version, size, note string) *wire.Object {
		return encode(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Website",
			"metadata": map[string]any{"name": "a", "uid": "1", "resourceVersion": version, "annotations": map[string]any{"about": note}},
			"spec":     map[string]any{"size": size},
		}})
	}
	passes := predicate.StatusChanged[*unstructured.Unstructured]()
	for _, note := range []string{"a note", "PartialObjectMetadata"} {
		if passes(change(informer.Updated, website("1", "small", note), website("2", "large", note))) {
			t.Errorf("with annotation %q: StatusChanged passes a change of the spec", note)
		}
	}
}

func TestChangedPassesInvalidEncoding(t *testing.T) {
	t.Parallel()
	pod := encode(t, newPod())
	for name, bytes := range map[string][]byte{"truncated": pod.Bytes[:len(pod.Bytes)-1], "not a message": {0xff}, "wrong length": {0x0a, 0x7f, 1}} {
		broken := pod.Clone()
		broken.Bytes = bytes
		if !predicate.StatusChanged[*corev1.Pod]()(change(informer.Updated, pod, broken)) {
			t.Errorf("%s: dropped", name)
		}
		if !predicate.StatusChanged[*corev1.Pod]()(change(informer.Updated, broken, broken)) {
			t.Errorf("%s in both states: dropped", name)
		}
	}
}

func TestDroppedUpdateDoesNotAllocate(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts all goroutines
	for format, encode := range encodings() {
		c := change(informer.Updated, encode(t, newPod()), encode(t, changedPod(func(p *corev1.Pod) { p.Labels["app"] = "api" })))
		for name, passes := range map[string]informer.Predicate{
			"generation": predicate.GenerationChanged(), "annotations": predicate.Changed(kube.ChangedAnnotations),
		} {
			if n := testing.AllocsPerRun(100, func() { passes(c) }); n > 0 && format == "protobuf" || n > 2 {
				t.Errorf("%s, %s: %.0f allocations", format, name, n)
			}
		}
	}
}
