package v1alpha1

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeepCopy is written manually, so a new field with a pointer, slice or map may be missing in it.
func TestDeepCopySharesNoMemory(t *testing.T) {
	t.Parallel()
	list := &PodTerminatorList{Items: []PodTerminator{*full()}}
	list.RemainingItemCount = new(int64)
	copied := list.DeepCopyObject().(*PodTerminatorList)
	if diff := cmp.Diff(list, copied); diff != "" {
		t.Fatalf("the copy differs (-want +got):\n%s", diff)
	}
	scribble(t, reflect.ValueOf(copied))
	want := &PodTerminatorList{Items: []PodTerminator{*full()}}
	want.RemainingItemCount = new(int64)
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("changing the copy changed the original (-want +got):\n%s", diff)
	}
}

func TestDeepCopyOfNil(t *testing.T) {
	t.Parallel()
	if got := (*PodTerminator)(nil).DeepCopy(); got != nil {
		t.Errorf("copy of a nil PodTerminator: %v", got)
	}
	if got := (*PodTerminatorList)(nil).DeepCopy(); got != nil {
		t.Errorf("copy of a nil list: %v", got)
	}
	if got := (*PodTerminatorStatus)(nil).DeepCopy(); got != nil {
		t.Errorf("copy of a nil status: %v", got)
	}
}

func full() *PodTerminator {
	now := metav1.NewMicroTime(time.UnixMicro(1))
	later := metav1.NewMicroTime(time.UnixMicro(2))
	refs := func() []PodReference { return []PodReference{{Name: "a", UID: "1"}} }
	return &PodTerminator{
		ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"}},
		Spec: PodTerminatorSpec{Selector: metav1.LabelSelector{
			MatchLabels:      map[string]string{"a": "b"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}},
		}},
		Status: PodTerminatorStatus{
			Conditions: []metav1.Condition{{Type: "Ready"}},
			LastRun:    &now, NextRun: &later,
			LastTerminated: refs(), WouldTerminate: refs(), Marked: refs(),
			Plan: &Plan{Victims: refs()},
		},
	}
}

// scribble changes everything that is reachable from v. It fails for a nil pointer, slice or map of this package's
// types: full must set it.
func scribble(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(t, v.Elem())
		}
	case reflect.Struct:
		ours := v.Type().PkgPath() == reflect.TypeFor[PodTerminator]().PkgPath()
		for field, value := range v.Fields() {
			switch value.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map:
				if ours && value.IsNil() {
					t.Errorf("%s.%s is nil: set it in full, and copy it in DeepCopy", v.Type().Name(), field.Name)
				}
			}
			if value.CanSet() {
				scribble(t, value)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(t, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
		}
	case reflect.String:
		v.SetString("scribbled")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(99)
	case reflect.Bool:
		v.SetBool(true)
	}
}
