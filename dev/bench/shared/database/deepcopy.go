package database

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies d into out, which shares nothing with it afterwards.
func (d *Database) DeepCopyInto(out *Database) {
	*out = *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Resources.Requests = maps.Clone(d.Spec.Resources.Requests)
	out.Spec.Resources.Limits = maps.Clone(d.Spec.Resources.Limits)
	out.Spec.Parameters = maps.Clone(d.Spec.Parameters)
	out.Spec.Listeners = slices.Clone(d.Spec.Listeners)
	if d.Spec.Backup != nil {
		backup := *d.Spec.Backup
		out.Spec.Backup = &backup
	}
	out.Status.Endpoints = slices.Clone(d.Status.Endpoints)
	if d.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(d.Status.Conditions))
		for i := range d.Status.Conditions {
			d.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
	out.Status.LastBackup = d.Status.LastBackup.DeepCopy()
}

// DeepCopy returns a copy that shares nothing with d.
func (d *Database) DeepCopy() *Database {
	if d == nil {
		return nil
	}
	out := &Database{}
	d.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (d *Database) DeepCopyObject() runtime.Object {
	if d == nil {
		return nil
	}
	return d.DeepCopy()
}

// DeepCopyObject implements runtime.Object.
func (l *DatabaseList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &DatabaseList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]Database, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
