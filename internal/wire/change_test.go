package wire

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   kube.ChangedParts
	}{
		"nothing":           {func(*corev1.Pod) {}, 0},
		"managed fields":    {func(p *corev1.Pod) { p.ManagedFields = nil }, 0},
		"uid":               {func(p *corev1.Pod) { p.UID = types.UID("x") }, kube.ChangedUID},
		"resource version":  {func(p *corev1.Pod) { p.ResourceVersion = "x" }, kube.ChangedResourceVersion},
		"generation":        {func(p *corev1.Pod) { p.Generation++ }, kube.ChangedGeneration},
		"deletion":          {func(p *corev1.Pod) { p.DeletionTimestamp = new(fixtureTime) }, kube.ChangedDeletion},
		"label changed":     {func(p *corev1.Pod) { p.Labels["app"] = "x" }, kube.ChangedLabels},
		"labels gone":       {func(p *corev1.Pod) { p.Labels = nil }, kube.ChangedLabels},
		"annotation added":  {func(p *corev1.Pod) { p.Annotations["x"] = "y" }, kube.ChangedAnnotations},
		"finalizer added":   {func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "x/y") }, kube.ChangedFinalizers},
		"finalizers gone":   {func(p *corev1.Pod) { p.Finalizers = nil }, kube.ChangedFinalizers},
		"owner changed":     {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = new(false) }, kube.ChangedOwnerReferences},
		"spec":              {func(p *corev1.Pod) { p.Spec.NodeName = "x" }, kube.ChangedSpec},
		"status":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, kube.ChangedStatus},
		"spec and status":   {func(p *corev1.Pod) { p.Spec.NodeName = "x"; p.Status.Phase = corev1.PodFailed }, kube.ChangedSpec | kube.ChangedStatus},
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
			const content = kube.ChangedSpec | kube.ChangedStatus
			check := func(how string, got, want kube.ChangedParts) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s, want %s", how, got, want)
				}
			}
			check("protobuf", comparer.Compare(beforeProto, afterProto, kube.ChangedAnything), tt.want)
			check("JSON", comparer.Compare(beforeJSON, afterJSON, kube.ChangedAnything), tt.want)
			check("both formats", comparer.Compare(beforeProto, afterJSON, kube.ChangedAnything), tt.want|content)
			check("JSON without a type", Comparer{}.Compare(beforeJSON, afterJSON, kube.ChangedAnything), tt.want)
			untyped := tt.want
			if tt.want.Has(content) {
				untyped |= content
			}
			check("protobuf without a type", Comparer{}.Compare(beforeProto, afterProto, kube.ChangedAnything), untyped)
			check("only labels", comparer.Compare(beforeProto, afterProto, kube.ChangedLabels), tt.want&kube.ChangedLabels)
			check("only status", comparer.Compare(beforeProto, afterProto, kube.ChangedStatus), tt.want&kube.ChangedStatus)
		})
	}
}

func TestCompareOfOtherOrder(t *testing.T) {
	t.Parallel()
	a := mustParse(t, []byte(`{"metadata":{"labels":{"a":"1","b":"2"},"annotations":{"c":"3"}}}`), nil)
	b := mustParse(t, []byte(`{"metadata":{"annotations": {"c":"\u0033"},"labels":{ "b":"2", "a":"1" }}}`), nil)
	if got := (Comparer{}).Compare(a, b, kube.ChangedAnything); got != 0 {
		t.Errorf("changed: %s", got)
	}
	parts := []string{"\x5a\x06\x0a\x01a\x12\x01b", "\x5a\x06\x0a\x01c\x12\x01d"}
	pa := &Object{Format: Protobuf, Bytes: []byte("\x0a\x10" + parts[0] + parts[1])}
	pb := &Object{Format: Protobuf, Bytes: []byte("\x0a\x10" + parts[1] + parts[0])}
	if got := (Comparer{}).Compare(pa, pb, kube.ChangedAnything); got != 0 {
		t.Errorf("changed: %s", got)
	}
}

// Each two of these states differ in a part that Compare must return, whichever of them has the last member.
func TestCompareOfMembersThatOneStateLacks(t *testing.T) {
	t.Parallel()
	members := []struct {
		json string
		part kube.ChangedParts
	}{
		{`"labels":{"a":"1"}`, kube.ChangedLabels},
		{`"annotations":{"a":"1"}`, kube.ChangedAnnotations},
		{`"finalizers":["a/b"]`, kube.ChangedFinalizers},
		{`"spec":{"a":1}`, kube.ChangedSpec},
		{`"status":{"a":1}`, kube.ChangedStatus},
	}
	state := func(chosen int) *Object {
		var metadata, others []string
		for i, m := range members {
			switch {
			case chosen&(1<<i) == 0:
			case m.part.Has(metadataParts):
				metadata = append(metadata, m.json)
			default:
				others = append(others, m.json)
			}
		}
		others = append([]string{`{"metadata":{` + strings.Join(metadata, ",") + "}"}, others...)
		return mustParse(t, []byte(strings.Join(others, ",")+"}"), nil)
	}
	for a := range 1 << len(members) {
		for b := range 1 << len(members) {
			got := (Comparer{}).Compare(state(a), state(b), kube.ChangedAnything)
			for i, m := range members {
				if want := (a^b)&(1<<i) != 0; want != got.Has(m.part) {
					t.Errorf("%05b and %05b: changed %s", a, b, got)
				}
			}
		}
	}
}

func TestCompareOfTypesWithoutStatus(t *testing.T) {
	t.Parallel()
	changed := realSecret()
	changed.Data["x"] = nil
	before, after := mustParse(t, asProto(t, realSecret(), secretKind), nil), mustParse(t, asProto(t, changed, secretKind), nil)
	if got := NewComparer(reflect.TypeFor[*corev1.Secret]()).Compare(before, after, kube.ChangedAnything); got != kube.ChangedSpec {
		t.Errorf("changed: %s", got)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[*metav1.PartialObjectMetadata](), reflect.TypeFor[*Database](), reflect.TypeFor[int]()} {
		if NewComparer(typ) != (Comparer{}) {
			t.Errorf("%s has a spec and a status in protobuf", typ)
		}
	}
}

// Invalid bytes are reported as changed.
func TestCompareOfBrokenBytes(t *testing.T) {
	t.Parallel()
	const content = kube.ChangedSpec | kube.ChangedStatus
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
	got := []string{kube.ChangedParts(0).String(), (kube.ChangedLabels | kube.ChangedStatus).String(), kube.ChangedAnything.String()}
	want := []string{"nothing", "labels,status", "uid,resourceVersion,generation,deletion,labels,annotations,finalizers,ownerReferences,spec,status"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
