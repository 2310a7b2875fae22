package builtin

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const (
	ephemeralContainers = "ephemeralcontainers"
	resize              = "resize"
)

// preparePodSubresource keeps what the subresource does not change.
func preparePodSubresource(subresource string, obj, old apiserver.Object) {
	pod, before := obj.(*corev1.Pod), old.DeepCopyObject().(*corev1.Pod)
	spec := before.Spec.DeepCopy()
	if subresource == resize {
		if len(pod.Spec.Containers) != len(spec.Containers) ||
			len(pod.Spec.InitContainers) != len(spec.InitContainers) {
			return // not valid, and validated as it was sent
		}
		spec.Resources = pod.Spec.Resources
		spec.Containers = resizedContainers(pod.Spec.Containers, spec.Containers)
		spec.InitContainers = resizedContainers(pod.Spec.InitContainers, spec.InitContainers)
	} else {
		spec.EphemeralContainers = pod.Spec.EphemeralContainers
	}
	pod.Spec, pod.Status = *spec, before.Status
	metav1.ResetObjectMetaForStatus(pod, before)
	dropDisabled(&pod.Spec)
	countChange(pod, before, pod.Spec, before.Spec)
}

// resizedContainers returns old with the resources of containers, or containers, which are not valid, if other names
// are in them.
func resizedContainers(containers, old []corev1.Container) []corev1.Container {
	same := func(a, b corev1.Container) bool { return a.Name == b.Name }
	if !slices.EqualFunc(containers, old, same) {
		return containers
	}
	for i, c := range containers {
		old[i].Resources, old[i].ResizePolicy = c.Resources, c.ResizePolicy
	}
	return old
}

func validatePodSubresource(subresource string, obj, old apiserver.Object) field.ErrorList {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	if subresource == "status" {
		return validatePodStatus(pod, before)
	}
	var p podProblems
	switch kind := unresizable(before); {
	case subresource == resize && kind != "":
		p.forbidden(field.NewPath(""), kind+" pods cannot be resized")
		return p.list
	case subresource == ephemeralContainers && kind == "static":
		p.forbidden(field.NewPath(""), "static pods do not support ephemeral containers")
		return p.list
	}
	p.add(apiserver.ValidateCoreMetadataUpdate(pod, before)...)
	p.podAndMetadata(pod, before)
	if subresource == resize {
		p.resize(pod, before)
		return p.list
	}
	path := field.NewPath("spec", "ephemeralContainers")
	for _, c := range before.Spec.EphemeralContainers {
		i := slices.IndexFunc(pod.Spec.EphemeralContainers, func(now corev1.EphemeralContainer) bool {
			return now.Name == c.Name
		})
		if i < 0 {
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", c.Name))
		} else if now := pod.Spec.EphemeralContainers[i]; !equality.Semantic.DeepEqual(c, now) {
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", c.Name,
				diff.Diff(internal(c), internal(now))))
		}
	}
	return p.list
}

// unresizable returns the kind of a Pod that cannot be resized; "" if it can.
func unresizable(pod *corev1.Pod) string {
	if _, mirrored := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirrored {
		return "static"
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return "windows"
	}
	return ""
}

// resize checks that only CPU and memory of the same containers change.
func (p *podProblems) resize(pod, old *corev1.Pod) {
	spec := field.NewPath("spec")
	if cmp.Or(old.Status.QOSClass, qosClass(&old.Spec)) != qosClass(&pod.Spec) {
		p.invalid(spec, pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	running := slices.IndexFunc(old.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil
	})
	if running >= 0 && old.Status.ContainerStatuses[running].Resources == nil {
		p.forbidden(spec, "Pod running on node without support for resize")
	}
	if !equality.Semantic.DeepEqual(pod.Spec.Resources, old.Spec.Resources) {
		p.forbidden(spec.Child("resources"), "the API server in memory does not resize a whole Pod")
	}
	same := p.sameContainers(pod.Spec.Containers, old.Spec.Containers, spec, "containers")
	if !p.sameContainers(pod.Spec.InitContainers, old.Spec.InitContainers, spec, "initContainers") || !same {
		return
	}
	kept := pod.Spec.DeepCopy() // without the changes that are valid
	for i := range kept.InitContainers {
		p.keepResources(&kept.InitContainers[i].Resources, &old.Spec.InitContainers[i].Resources,
			spec.Child("initContainers").Index(i).Child("resources"))
	}
	for i := range kept.Containers {
		p.keepResources(&kept.Containers[i].Resources, &old.Spec.Containers[i].Resources,
			spec.Child("containers").Index(i).Child("resources"))
	}
	for i, c := range kept.Containers {
		if !equality.Semantic.DeepEqual(c, old.Spec.Containers[i]) {
			p.forbidden(spec, "only cpu and memory resources are mutable")
		}
	}
	for i, c := range kept.InitContainers {
		if !equality.Semantic.DeepEqual(c, old.Spec.InitContainers[i]) {
			p.forbidden(spec.Child("initContainers").Index(i),
				"only cpu and memory resources for init or sidecar containers are mutable")
		}
	}
}

// sameContainers checks that a list has the containers that it had.
func (p *podProblems) sameContainers(containers, old []corev1.Container, spec *field.Path, list string) bool {
	before := len(p.list)
	if len(containers) != len(old) {
		p.forbidden(spec.Child(list), list+" may not be added or removed on resize")
		return false
	}
	for i, c := range old {
		if containers[i].Name != c.Name {
			p.forbidden(spec.Child(list).Index(i).Child("name"), list+" may not be renamed or reordered on resize")
		}
	}
	return len(p.list) == before
}

// keepResources undoes the changes of CPU and memory, and checks that no resource is removed. As in the real server, a
// container with resource claims cannot be resized.
func (p *podProblems) keepResources(r, old *corev1.ResourceRequirements, path *field.Path) {
	keep := func(list *corev1.ResourceList, before corev1.ResourceList, part string) {
		if slices.ContainsFunc(sortedKeys(before), func(name corev1.ResourceName) bool {
			_, exists := (*list)[name]
			return !exists
		}) {
			p.forbidden(path.Child(part), "resource "+part+" cannot be removed")
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(*list, name)
			if quantity, exists := before[name]; exists {
				(*list)[name] = quantity
			}
		}
	}
	r.Claims = nil
	keep(&r.Requests, old.Requests, "requests")
	keep(&r.Limits, old.Limits, "limits")
}
