package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (t *PodTerminator) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopy returns a copy that shares nothing with t.
func (t *PodTerminator) DeepCopy() *PodTerminator {
	if t == nil {
		return nil
	}
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	t.Spec.Selector.DeepCopyInto(&out.Spec.Selector)
	out.Status = *t.Status.DeepCopy()
	return &out
}

// DeepCopy returns a copy that shares nothing with s.
func (s *PodTerminatorStatus) DeepCopy() *PodTerminatorStatus {
	if s == nil {
		return nil
	}
	out := *s
	if s.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(s.Conditions))
		for i := range s.Conditions {
			s.Conditions[i].DeepCopyInto(&out.Conditions[i])
		}
	}
	out.LastRun = s.LastRun.DeepCopy()
	out.NextRun = s.NextRun.DeepCopy()
	out.LastTerminated = slices.Clone(s.LastTerminated)
	out.WouldTerminate = slices.Clone(s.WouldTerminate)
	if s.Plan != nil {
		out.Plan = &Plan{DryRun: s.Plan.DryRun, Victims: slices.Clone(s.Plan.Victims)}
	}
	out.Marked = slices.Clone(s.Marked)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *PodTerminatorList) DeepCopyObject() runtime.Object { return l.DeepCopy() }

// DeepCopy returns a copy that shares nothing with l.
func (l *PodTerminatorList) DeepCopy() *PodTerminatorList {
	if l == nil {
		return nil
	}
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]PodTerminator, len(l.Items))
		for i := range l.Items {
			out.Items[i] = *l.Items[i].DeepCopy()
		}
	}
	return &out
}
