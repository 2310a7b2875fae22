package builtin

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// ofContainers returns the requests or limits of all containers together: those of the containers that run at the same
// time, or more if an init container needs more.
func ofContainers(
	spec *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList,
) corev1.ResourceList {
	add := func(total, list corev1.ResourceList) {
		for name, quantity := range list {
			sum := total[name].DeepCopy()
			sum.Add(quantity)
			total[name] = sum
		}
	}
	total, sidecars, highest := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	raise := func(to, list corev1.ResourceList) {
		for name, quantity := range list {
			if least, exists := to[name]; !exists || quantity.Cmp(least) > 0 {
				to[name] = quantity
			}
		}
	}
	for i := range spec.Containers {
		add(total, of(&spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		c, running := &spec.InitContainers[i], sidecars.DeepCopy()
		add(running, of(&c.Resources))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(total, of(&c.Resources))
			sidecars = running
		}
		raise(highest, running)
	}
	raise(total, highest)
	return total
}

func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

// ofPod reports whether a whole Pod can have requests and limits of a resource.
func ofPod(name corev1.ResourceName) bool { return isCPUOrMemory(name) || isHugePages(name) }

func isCPUOrMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// defaultPodResources completes the resources of a whole Pod from those of its containers.
func defaultPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	complete := func(list *corev1.ResourceList, from corev1.ResourceList, applies func(corev1.ResourceName) bool) {
		for name, quantity := range from {
			if _, exists := (*list)[name]; exists || !applies(name) {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = quantity.DeepCopy()
		}
	}
	complete(&r.Limits, ofContainers(spec, limitsOf), func(name corev1.ResourceName) bool {
		_, requested := r.Requests[name]
		return isHugePages(name) && !requested
	})
	if len(r.Limits) > 0 {
		complete(&r.Requests, ofContainers(spec, requestsOf), isCPUOrMemory)
		complete(&r.Requests, r.Limits, ofPod)
	}
}

// podResources checks the resources of a whole Pod: its containers together may not request more.
func (p *podProblems) podResources(path *field.Path) {
	r := p.spec.Resources
	switch {
	case r == nil:
		return
	case p.spec.OS != nil && p.spec.OS.Name == corev1.Windows:
		p.forbidden(path, "may not be set for a windows pod")
		return
	case r.Claims != nil:
		p.forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	p.requirements(r, p.podResourceName, path)
	exceeded := func(of func(*corev1.ResourceRequirements) corev1.ResourceList, part string,
		applies func(corev1.ResourceName) bool,
	) {
		total, list := ofContainers(p.spec, of), of(r)
		for _, name := range sortedKeys(total) {
			sum, most := total[name], list[name]
			if _, exists := list[name]; exists && applies(name) && sum.Cmp(most) > 0 {
				p.invalid(path.Child(part).Key(string(name)), most.String(), fmt.Sprintf("must be greater than or "+
					"equal to aggregate container %s of %s", part, sum.String()))
			}
		}
	}
	exceeded(requestsOf, "requests", func(corev1.ResourceName) bool { return true })
	exceeded(limitsOf, "limits", isHugePages)
	for i, c := range p.spec.Containers {
		for _, name := range sortedKeys(c.Resources.Limits) {
			limit, most := c.Resources.Limits[name], r.Limits[name]
			if _, exists := r.Limits[name]; exists && limit.Cmp(most) > 0 {
				p.invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
					"must be less than or equal to pod limits of "+most.String())
			}
		}
	}
}

func (p *podProblems) podResourceName(name corev1.ResourceName, path *field.Path) {
	messages := utilvalidation.IsQualifiedName(string(name))
	p.invalidFor(path, name, messages)
	switch {
	case len(messages) > 0:
	case !strings.Contains(string(name), "/") && !isStandardResource(name):
		p.invalid(path, name, "must be a standard resource type or fully qualified")
	case !ofPod(name):
		p.add(field.NotSupported(path, name, []corev1.ResourceName{
			corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory,
		}))
	}
}

// permitPod returns why the admission plugin PodResizeValidator of the real server forbids a resize: the node must
// exist, run Linux, and have what the Pod requests.
func permitPod(
	subresource string, obj, old apiserver.Object, find func(node string) (apiserver.Object, error),
) (metav1.CauseType, error) {
	pod := obj.(*corev1.Pod)
	if subresource != resize || pod.Spec.NodeName == "" || pod.Generation == old.GetGeneration() {
		return "", nil
	}
	found, err := find(pod.Spec.NodeName)
	node, ok := found.(*corev1.Node)
	if err != nil || !ok {
		return "", err
	}
	if system, exists := node.Labels[corev1.LabelOSStable]; exists && system != "linux" {
		return "UnsupportedPlatform", fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q",
			node.Name, system)
	}
	requests := ofContainers(&pod.Spec, requestsOf)
	if r := pod.Spec.Resources; r != nil {
		maps.Copy(requests, r.Requests)
	}
	for name, quantity := range pod.Spec.Overhead {
		sum := requests[name]
		sum.Add(quantity)
		requests[name] = sum
	}
	var lacks []string
	allocatable := node.Status.Allocatable
	if requests.Cpu().Cmp(*allocatable.Cpu()) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", requests.Cpu().MilliValue(),
			allocatable.Cpu().MilliValue()))
	}
	if requests.Memory().Cmp(*allocatable.Memory()) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", requests.Memory().Value(),
			allocatable.Memory().Value()))
	}
	if len(lacks) == 0 {
		return "", nil
	}
	return "NodeCapacity", errors.New("node didn't have enough allocatable resources: " + strings.Join(lacks, "; "))
}
