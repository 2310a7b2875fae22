package builtin

import (
	"maps"
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Labels of the Pods of a Job that existed before those with a prefix.
const (
	oldJobNameLabel       = "job-name"
	oldControllerUIDLabel = "controller-uid"
)

// Jobs returns the kind Job.
func Jobs() *apiserver.Kind {
	k := apiserver.Builtin[batchv1.Job](batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", batchv1.AddToScheme)
	k.Status, k.Generation = true, true
	k.Categories = []string{"all"}
	k.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) { defaultJob(obj.(*batchv1.Job)) },
		Prepare: prepareJob,
		Stored:  labelStoredJob,
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			if old == nil {
				return validateJob(obj.(*batchv1.Job), nil)
			}
			return validateJobUpdate(obj.(*batchv1.Job), old.(*batchv1.Job))
		},
		ValidateSubresource: func(_ string, obj, old apiserver.Object) field.ErrorList {
			return append(apiserver.ValidateCoreMetadataUpdate(obj, old),
				validateJobStatus(obj.(*batchv1.Job), old.(*batchv1.Job))...)
		},
		Warnings: jobWarnings,
		Fields: func(obj apiserver.Object) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
		},
		FieldLabels:      []string{"status.successful"},
		UnknownField:     "field label %q not supported for Job",
		OrphanDependents: true,
		OrphanWarning: "child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
	}
	return k
}

func prepareJob(obj, old apiserver.Object) {
	job := obj.(*batchv1.Job)
	dropDisabled(&job.Spec.Template.Spec)
	if old == nil {
		if !*job.Spec.ManualSelector {
			generateSelector(job)
		}
		return
	}
	before := old.(*batchv1.Job)
	countChange(job, before, job.Spec, before.Spec)
}

// labelStoredJob gives a Job without labels those of its template, as the real server does when it reads one.
func labelStoredJob(obj apiserver.Object) bool {
	job := obj.(*batchv1.Job)
	if len(job.Labels) > 0 || len(job.Spec.Template.Labels) == 0 {
		return false
	}
	job.Labels = maps.Clone(job.Spec.Template.Labels)
	return true
}

func jobWarnings(obj, old apiserver.Object) []string {
	if old != nil && obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	job := obj.(*batchv1.Job)
	var warnings []string
	if old == nil {
		warnings = nameWarnings(podNames, job.Name)
	}
	completions, parallelism := job.Spec.Completions, job.Spec.Parallelism
	if isIndexed(job) && completions != nil && *completions > 100_000 && parallelism != nil && *parallelism > 10_000 {
		warnings = append(warnings, "spec: In Indexed Jobs with a number of completions higher than 10^5 and a "+
			"parallelism higher than 10^4, "+
			"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, templateWarnings(job, false, &job.Spec.Template)...)
}

func defaultJob(job *batchv1.Job) {
	spec := &job.Spec
	defaultTemplate(&spec.Template)
	if spec.Completions == nil && spec.Parallelism == nil {
		setPointer(&spec.Completions, 1)
	}
	setPointer(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		setPointer(&spec.BackoffLimit, math.MaxInt32)
	}
	setPointer(&spec.BackoffLimit, 6)
	if len(job.Labels) == 0 && spec.Template.Labels != nil {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	setPointer(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	setPointer(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil {
		setPointer(&spec.PodReplacementPolicy, batchv1.Failed)
		for i := range spec.PodFailurePolicy.Rules {
			for j := range spec.PodFailurePolicy.Rules[i].OnPodConditions {
				setDefault(&spec.PodFailurePolicy.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	setPointer(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	setPointer(&spec.ManualSelector, false)
}

// generateSelector selects the Pods of a new Job by its uid, and gives them labels.
func generateSelector(job *batchv1.Job) {
	template := &job.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for key, value := range map[string]string{
		oldJobNameLabel: job.Name, batchv1.JobNameLabel: job.Name, oldControllerUIDLabel: string(job.UID),
		batchv1.ControllerUidLabel: string(job.UID),
	} {
		if _, exists := template.Labels[key]; !exists {
			template.Labels[key] = value
		}
	}
	setPointer(&job.Spec.Selector, metav1.LabelSelector{})
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	setLabel := job.Spec.Selector.MatchLabels
	if _, exists := setLabel[batchv1.ControllerUidLabel]; !exists {
		setLabel[batchv1.ControllerUidLabel] = string(job.UID)
	}
}

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}
