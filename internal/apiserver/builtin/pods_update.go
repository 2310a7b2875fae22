package builtin

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	var p podProblems
	p.add(apiserver.ValidateCoreMetadataUpdate(pod, old)...)
	p.podAndMetadata(pod, old)
	p.annotationUpdate(pod, old)
	spec := field.NewPath("spec")
	if p.containersUpdate(pod.Spec.Containers, old.Spec.Containers, spec.Child("containers")) ||
		p.containersUpdate(pod.Spec.InitContainers, old.Spec.InitContainers, spec.Child("initContainers")) {
		return p.list
	}
	seconds, before := pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch path := spec.Child("activeDeadlineSeconds"); {
	case seconds != nil && (*seconds < 0 || *seconds > math.MaxInt32):
		p.invalid(path, *seconds, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
		return p.list
	case seconds != nil && before != nil && *before < *seconds:
		p.invalid(path, *seconds, "must be less than or equal to previous value")
		return p.list
	case seconds == nil && before != nil:
		p.invalid(path, seconds, "must not update from a positive integer to nil value")
	}
	p.addedTolerations(pod.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))
	for i, gate := range pod.Spec.SchedulingGates {
		// Of gates with the same name, the last one is reported.
		if !slices.Contains(old.Spec.SchedulingGates, gate) && !slices.Contains(pod.Spec.SchedulingGates[i+1:], gate) {
			p.forbidden(spec.Child("schedulingGates").Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
	if allowed := p.withAllowedChanges(&pod.Spec, &old.Spec); !equality.Semantic.DeepEqual(*allowed, old.Spec) {
		p.forbidden(spec,
			"pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"+
				"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
				"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"+
				diff.Diff(internal(readBack(old.Spec)), internal(*allowed)))
	}
	return p.list
}

// readBack returns a specification as the real server reads it from etcd: empty maps and lists are nil then.
func readBack(spec corev1.PodSpec) corev1.PodSpec {
	var read corev1.PodSpec
	if encoded, err := spec.Marshal(); err != nil || read.Unmarshal(encoded) != nil {
		return spec
	}
	return read
}

// containersUpdate checks an update of a list of containers. It reports whether further checks make no sense.
func (p *podProblems) containersUpdate(containers, old []corev1.Container, path *field.Path) (stop bool) {
	if len(containers) != len(old) {
		p.forbidden(path, "pod updates may not add or remove containers")
		return true
	}
	for i, c := range containers {
		p.nonEmpty(path.Index(i).Child("image"), c.Image)
		p.imageWithoutSpaces(c.Image, path.Index(i))
	}
	return false
}

func (p *podProblems) addedTolerations(tolerations, old []corev1.Toleration, path *field.Path) {
	for _, before := range old {
		kept := slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			t.TolerationSeconds = before.TolerationSeconds
			return t == before
		})
		if !kept {
			p.forbidden(path, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
	p.tolerations(tolerations, path)
}

// withAllowedChanges returns a copy of an updated specification without the changes that are allowed.
func (p *podProblems) withAllowedChanges(spec, old *corev1.PodSpec) *corev1.PodSpec {
	rest := *spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds, rest.SchedulingGates, rest.Tolerations = old.ActiveDeadlineSeconds, old.SchedulingGates,
		old.Tolerations
	if len(old.SchedulingGates) == 0 {
		return &rest
	}
	path := field.NewPath("spec", "nodeSelector")
	for key, value := range old.NodeSelector {
		if now, exists := spec.NodeSelector[key]; !exists || now != value {
			p.invalid(path, spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations "+
				"or deletions)")
			break
		}
	}
	rest.NodeSelector = old.NodeSelector
	return &rest
}

func (p *podProblems) annotationUpdate(pod, old *corev1.Pod) {
	all := field.NewPath("metadata", "annotations")
	const key = corev1.MirrorPodAnnotationKey
	value, exists := pod.Annotations[key]
	before, existed := old.Annotations[key]
	switch path := all.Key(key); {
	case existed && (!exists || value != before):
		p.forbidden(path, "may not remove or update mirror pod annotation")
	case exists && !existed:
		p.forbidden(path, "may not add mirror pod annotation")
	}
	p.podAnnotations(pod.Annotations, all)
}
