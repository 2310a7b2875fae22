package wire

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   Change
	}{
		"nothing":           {func(*corev1.Pod) {}, 0},
		"managed fields":    {func(p *corev1.Pod) { p.ManagedFields = nil }, 0},
		"uid":               {func(p *corev1.Pod) { p.UID = types.UID("x") }, ChangedUID},
		"resource version":  {func(p *corev1.Pod) { p.ResourceVersion = "x" }, ChangedResourceVersion},
		"generation":        {func(p *corev1.Pod) { p.Generation++ }, ChangedGeneration},
		"deletion":          {func(p *corev1.Pod) { p.DeletionTimestamp = new(fixtureTime) }, ChangedDeletion},
		"label changed":     {func(p *corev1.Pod) { p.Labels["app"] = "x" }, ChangedLabels},
		"labels gone":       {func(p *corev1.Pod) { p.Labels = nil }, ChangedLabels},
		"annotation added":  {func(p *corev1.Pod) { p.Annotations["x"] = "y" }, ChangedAnnotations},
		"finalizer added":   {func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "x/y") }, ChangedFinalizers},
		"finalizers gone":   {func(p *corev1.Pod) { p.Finalizers = nil }, ChangedFinalizers},
		"owner changed":     {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = new(false) }, ChangedOwnerReferences},
		"spec":              {func(p *corev1.Pod) { p.Spec.NodeName = "x" }, ChangedSpec},
		"status":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, ChangedStatus},
		"spec and status":   {func(p *corev1.Pod) { p.Spec.NodeName = "x"; p.Status.Phase = corev1.PodFailed }, ChangedSpec | ChangedStatus},
		"another namespace": {func(p *corev1.Pod) { p.Namespace = "x" }, 0},
	}
	comparer := NewComparer(reflect.TypeFor[*corev1.Pod]())
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := realPod()
			tt.change(changed)
			beforeProto, afterProto := mustParse(t, asProto(t, realPod(), podKind), cut), mustParse(t, asProto(t, changed, podKind), cut)
			beforeJSON, afterJSON := mustParse(t, asJSON(t, realPod(), podKind), cut), mustParse(t, asJSON(t, changed, podKind), cut)
			const content = ChangedSpec | ChangedStatus
			check := func(how string, got, want Change) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s, want %s", how, got, want)
				}
			}
			check("protobuf", comparer.Compare(beforeProto, afterProto, ChangedAnything), tt.want)
			check("JSON", comparer.Compare(beforeJSON, afterJSON, ChangedAnything), tt.want)
			check("both formats", comparer.Compare(beforeProto, afterJSON, ChangedAnything), tt.want|content)
			check("JSON without a type", Comparer{}.Compare(beforeJSON, afterJSON, ChangedAnything), tt.want)
			untyped := tt.want
			if tt.want.Has(content) {
				untyped |= content
			}
			check("protobuf without a type", Comparer{}.Compare(beforeProto, afterProto, ChangedAnything), untyped)
			check("only labels", comparer.Compare(beforeProto, afterProto, ChangedLabels), tt.want&ChangedLabels)
			check("only status", comparer.Compare(beforeProto, afterProto, ChangedStatus), tt.want&ChangedStatus)
		})
	}
}

func TestCompareOfOtherOrder(t *testing.T) {
	t.Parallel()
	a := mustParse(t, []byte(`{"metadata":{"labels":{"a":"1","b":"2"},"annotations":{"c":"3"}}}`), nil)
	b := mustParse(t, []byte(`{"metadata":{"annotations": {"c":"\u0033"},"labels":{ "b":"2", "a":"1" }}}`), nil)
	if got := (Comparer{}).Compare(a, b, ChangedAnything); got != 0 {
		t.Errorf("changed: %s", got)
	}
	parts := []string{"\x5a\x06\x0a\x01a\x12\x01b", "\x5a\x06\x0a\x01c\x12\x01d"}
	pa := &Object{Format: Protobuf, Bytes: []byte("\x0a\x10" + parts[0] + parts[1])}
	pb := &Object{Format: Protobuf, Bytes: []byte("\x0a\x10" + parts[1] + parts[0])}
	if got := (Comparer{}).Compare(pa, pb, ChangedAnything); got != 0 {
		t.Errorf("changed: %s", got)
	}
}

func TestCompareOfTypesWithoutStatus(t *testing.T) {
	t.Parallel()
	changed := realSecret()
	changed.Data["x"] = nil
	before, after := mustParse(t, asProto(t, realSecret(), secretKind), nil), mustParse(t, asProto(t, changed, secretKind), nil)
	if got := NewComparer(reflect.TypeFor[*corev1.Secret]()).Compare(before, after, ChangedAnything); got != ChangedSpec {
		t.Errorf("changed: %s", got)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[*metav1.PartialObjectMetadata](), reflect.TypeFor[*Database](), reflect.TypeFor[int]()} {
		if NewComparer(typ) != (Comparer{}) {
			t.Errorf("%s has a spec and a status in protobuf", typ)
		}
	}
}

// What cannot be read is reported as changed.
func TestCompareOfBrokenBytes(t *testing.T) {
	t.Parallel()
	const content = ChangedSpec | ChangedStatus
	comparer := NewComparer(reflect.TypeFor[*corev1.Pod]())
	for _, format := range []Format{Protobuf, JSON} {
		for _, broken := range []string{"\xff", `{"a":`} {
			o := &Object{Format: format, Bytes: []byte(broken)}
			if got := comparer.Compare(o, o, content); got != content {
				t.Errorf("%s %q: %s", format, broken, got)
			}
		}
	}
}

func TestChangeString(t *testing.T) {
	t.Parallel()
	got := []string{Change(0).String(), (ChangedLabels | ChangedStatus).String(), ChangedAnything.String()}
	want := []string{"nothing", "labels,status", "uid,resourceVersion,generation,deletion,labels,annotations,finalizers,ownerReferences,spec,status"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
