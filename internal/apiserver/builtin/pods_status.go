package builtin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// preparePodStatus keeps what updates of the status of a Pod cannot change or remove.
func preparePodStatus(obj, old apiserver.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	pod.OwnerReferences = before.OwnerReferences
	pod.DeletionTimestamp = nil
	setDefault(&pod.Status.QOSClass, before.Status.QOSClass)
	setDefault(&pod.Status.ObservedGeneration, before.Status.ObservedGeneration)
	observed := map[corev1.PodConditionType][]int64{} // a type can be there twice
	for _, c := range before.Status.Conditions {
		observed[c.Type] = append(observed[c.Type], c.ObservedGeneration)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if all := observed[c.Type]; len(all) > 0 {
			setDefault(&c.ObservedGeneration, all[0])
			observed[c.Type] = all[1:]
		}
	}
}

func validatePodStatus(pod, old *corev1.Pod) field.ErrorList {
	var p podProblems
	p.spec = &pod.Spec
	p.add(apiserver.ValidateCoreMetadataUpdate(pod, old)...)
	p.annotationUpdate(pod, old)
	status, path := &pod.Status, field.NewPath("status")
	for i, c := range status.Conditions {
		path := path.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			p.invalid(path.Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer")
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodInitialized {
			p.invalidFor(path.Child("Type"), string(c.Type), utilvalidation.IsQualifiedName(string(c.Type)))
		}
	}
	if name := status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		p.invalidFor(path.Child("nominatedNodeName"), name, validation.NameIsDNSSubdomain(name, false))
		if old.Spec.NodeName != "" {
			p.forbidden(path.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node")
		}
	}
	if status.ObservedGeneration < 0 {
		p.invalid(path.Child("observedGeneration"), status.ObservedGeneration, "must be a non-negative integer")
	}
	p.immutable(path.Child("qosClass"), status.QOSClass, old.Status.QOSClass)
	p.transitions(status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.Containers,
		path.Child("containerStatuses"))
	p.transitions(status.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.InitContainers,
		path.Child("initContainerStatuses"))
	p.transitions(status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, nil,
		path.Child("ephemeralContainerStatuses"))
	var addresses, before []string
	for _, ip := range old.Status.PodIPs {
		before = append(before, ip.IP)
	}
	for i, ip := range status.PodIPs {
		p.address(path.Child("podIPs").Index(i), ip.IP, before...)
		addresses = append(addresses, ip.IP)
	}
	p.oneOfEachFamily(addresses, internal(status.PodIPs), path.Child("podIPs"))
	addresses, before = nil, nil
	for _, ip := range old.Status.HostIPs {
		before = append(before, ip.IP)
	}
	for i, ip := range status.HostIPs {
		if i == 0 && ip.IP != status.HostIP {
			p.invalid(path.Child("hostIPs").Index(0).Child("ip"), ip.IP, "must be equal to `hostIP`")
		}
		p.address(path.Child("hostIPs").Index(i), ip.IP, before...)
		addresses = append(addresses, ip.IP)
	}
	p.oneOfEachFamily(addresses, internal(status.HostIPs), path.Child("hostIPs"))
	return p.list
}

// oneOfEachFamily checks that several addresses are one of IPv4 and one of IPv6.
func (p *podProblems) oneOfEachFamily(addresses []string, shown any, path *field.Path) {
	if len(addresses) < 2 {
		return
	}
	both, err := utilnet.IsDualStackIPStrings(addresses)
	if err != nil {
		p.add(field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !both || len(addresses) > 2 {
		p.invalid(path, shown, "may specify no more than one IP for each IP family")
	}
}

// transitions checks that terminated containers stay terminated, unless their restart policy restarts them.
func (p *podProblems) transitions(
	statuses, old []corev1.ContainerStatus, containers []corev1.Container, path *field.Path,
) {
	for i, before := range old {
		if before.State.Terminated == nil {
			continue
		}
		for _, status := range statuses {
			if status.Name == before.Name && status.State.Terminated == nil && !p.restarts(before, containers) {
				p.forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
				break
			}
		}
	}
}

// restarts reports whether a terminated container may run again.
func (p *podProblems) restarts(terminated corev1.ContainerStatus, containers []corev1.Container) bool {
	code := terminated.State.Terminated.ExitCode
	for _, c := range containers {
		if c.Name != terminated.Name {
			continue
		}
		for _, rule := range c.RestartPolicyRules {
			if rule.ExitCodes == nil {
				continue
			}
			if in := rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn; slices.Contains(
				rule.ExitCodes.Values, code) == in {
				return true
			}
		}
		policy := p.spec.RestartPolicy
		if c.RestartPolicy != nil {
			policy = corev1.RestartPolicy(*c.RestartPolicy)
		}
		return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
	}
	return false
}
