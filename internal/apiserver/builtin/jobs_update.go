package builtin

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func validateJobUpdate(job, old *batchv1.Job) field.ErrorList {
	p := &problems{list: validateJob(job, old)}
	p.add(apiserver.ValidateCoreMetadataUpdate(job, old)...)
	spec, before, path := &job.Spec, &old.Spec, field.NewPath("spec")
	p.jobSpec(job, old)
	switch completions := path.Child("completions"); {
	case !isIndexed(job):
		p.immutable(completions, spec.Completions, before.Completions)
	case spec.Completions != nil && !equality.Semantic.DeepEqual(spec.Completions, before.Completions) &&
		*spec.Completions != *spec.Parallelism:
		p.invalid(completions, spec.Completions, "can only be modified in tandem with spec.parallelism")
	}
	p.immutable(path.Child("selector"), spec.Selector, before.Selector)
	p.templateUpdate(job, old, path)
	p.immutable(path.Child("completionMode"), spec.CompletionMode, before.CompletionMode)
	p.immutableInternal(path.Child("podFailurePolicy"), spec.PodFailurePolicy, before.PodFailurePolicy)
	p.immutable(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex, before.BackoffLimitPerIndex)
	p.immutable(path.Child("managedBy"), spec.ManagedBy, before.ManagedBy)
	p.immutableInternal(path.Child("successPolicy"), spec.SuccessPolicy, before.SuccessPolicy)
	return p.list
}

// immutableInternal is immutable for a value of an internal type.
func (p *problems) immutableInternal(path *field.Path, value, old any) {
	if !equality.Semantic.DeepEqual(value, old) {
		p.invalid(path, internal(value), isImmutable)
	}
}

// templateUpdate checks that the template does not change. A suspended Job without Pods may change where Pods run, and
// what they need.
func (p *problems) templateUpdate(job, old *batchv1.Job, path *field.Path) {
	template, before := &job.Spec.Template, &old.Spec.Template
	idle := *old.Spec.Suspend && (old.Status.StartTime == nil || hasCondition(old, batchv1.JobSuspended)) &&
		old.Status.Active == 0
	if !idle {
		p.immutableInternal(path.Child("template"), template, before)
		return
	}
	allowed := before.DeepCopy()
	switch affinity := template.Spec.Affinity; {
	case allowed.Spec.Affinity != nil && affinity != nil:
		allowed.Spec.Affinity.NodeAffinity = affinity.NodeAffinity
	case allowed.Spec.Affinity != nil:
		if allowed.Spec.Affinity.NodeAffinity = nil; *allowed.Spec.Affinity == (corev1.Affinity{}) {
			allowed.Spec.Affinity = nil
		}
	case affinity != nil:
		allowed.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	allowed.Spec.NodeSelector, allowed.Spec.Tolerations = template.Spec.NodeSelector, template.Spec.Tolerations
	allowed.Spec.SchedulingGates = template.Spec.SchedulingGates
	for _, lists := range [][2][]corev1.Container{
		{template.Spec.Containers, allowed.Spec.Containers},
		{template.Spec.InitContainers, allowed.Spec.InitContainers},
	} {
		for i := range lists[0] {
			if len(lists[0]) == len(lists[1]) && lists[0][i].Name == lists[1][i].Name {
				lists[1][i].Resources = lists[0][i].Resources
			}
		}
	}
	p.immutableInternal(path.Child("template.spec"), template.Spec, allowed.Spec)
}
