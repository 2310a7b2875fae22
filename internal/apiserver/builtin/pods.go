package builtin

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Pods returns the kind Pod.
func Pods() *apiserver.Kind {
	k := apiserver.Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods", corev1.AddToScheme)
	k.ShortNames = []string{"po"}
	k.Status, k.Generation = true, true
	k.Categories = []string{"all"}
	k.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) { defaultPod(obj.(*corev1.Pod)) },
		Admit: func(obj, old apiserver.Object) {
			var before *corev1.Pod
			if old != nil {
				before = old.(*corev1.Pod)
			}
			admit(obj.(*corev1.Pod), before)
		},
		Prepare: func(obj, old apiserver.Object) {
			pod := obj.(*corev1.Pod)
			var before *corev1.Pod
			if old != nil {
				before = old.(*corev1.Pod)
			}
			dropDisabled(&pod.Spec)
			if before != nil {
				countChange(pod, before, pod.Spec, before.Spec)
				return
			}
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&pod.Spec)}
			if len(pod.Spec.SchedulingGates) > 0 {
				pod.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
					Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: metav1.Time{Time: time.Now().Truncate(time.Second)},
				}}
			}
			addLabelKeys(pod)
		},
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			pod := obj.(*corev1.Pod)
			if old != nil {
				return validatePodUpdate(pod, old.(*corev1.Pod))
			}
			return validateNewPod(pod)
		},
		ValidateSubresource: func(_ string, obj, old apiserver.Object) field.ErrorList {
			return validatePodStatus(obj.(*corev1.Pod), old.(*corev1.Pod))
		},
		Fields: func(obj apiserver.Object) fields.Set {
			pod := obj.(*corev1.Pod)
			return fields.Set{
				"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "spec.schedulerName": pod.Spec.SchedulerName,
				"spec.serviceAccountName": pod.Spec.ServiceAccountName, "spec.hostNetwork": strconv.FormatBool(pod.Spec.HostNetwork),
				"status.phase": string(pod.Status.Phase), "status.podIP": pod.Status.PodIP, "status.nominatedNodeName": pod.Status.NominatedNodeName,
			}
		},
		FieldLabels: []string{
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		},
		Warnings: func(obj, old apiserver.Object) []string {
			pod := obj.(*corev1.Pod)
			if old != nil {
				return nil
			}
			return append(nameWarnings("the Pod's hostname", pod.Name), podWarnings(nil, &pod.Spec, &pod.ObjectMeta)...)
		},
		PrepareStatus: preparePodStatus,
		StatusIgnores: []string{"deletionTimestamp", "ownerReferences"},
		GracePeriod: func(obj apiserver.Object, requested *int64) int64 {
			pod := obj.(*corev1.Pod)
			period := requested
			if period == nil {
				period = pod.Spec.TerminationGracePeriodSeconds
			}
			ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
			if pod.Spec.NodeName == "" || ended || period == nil {
				return 0
			}
			return *period
		},
		ReturnDeleted: true,
	}
	return k
}

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

// countChange sets the generation of an updated object, whose specification is spec.
func countChange(obj, old apiserver.Object, spec, before any) {
	obj.SetGeneration(old.GetGeneration())
	if !equality.Semantic.DeepEqual(spec, before) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// admit does what the admission plugins of the real server do to Pods: it sets the priority of Pods without a class, and
// for how long Pods tolerate nodes that are not ready.
func admit(pod, old *corev1.Pod) {
	spec := &pod.Spec
	switch {
	case old == nil && spec.PriorityClassName == "":
		setPointer(&spec.Priority, 0)
		setPointer(&spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	case old == nil && strings.HasPrefix(spec.PriorityClassName, "system-"):
		priorities := map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
		if priority, exists := priorities[spec.PriorityClassName]; exists {
			setPointer(&spec.Priority, priority)
			setPointer(&spec.PreemptionPolicy, corev1.PreemptLowerPriority)
		}
	case old != nil:
		if spec.Priority == nil && old.Spec.Priority != nil {
			spec.Priority = new(*old.Spec.Priority)
		}
		if spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
			spec.PreemptionPolicy = new(*old.Spec.PreemptionPolicy)
		}
	}
	const seconds = 300
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerated {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(seconds)),
			})
		}
	}
}

// dropDisabled removes the fields of features that are off by default.
func dropDisabled(spec *corev1.PodSpec) {
	spec.SchedulingGroup = nil
	for _, c := range allContainers(spec) {
		if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
			c.Lifecycle.StopSignal = nil
			if *c.Lifecycle == (corev1.Lifecycle{}) {
				c.Lifecycle = nil
			}
		}
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].Projected != nil {
			for j := range spec.Volumes[i].Projected.Sources {
				source := &spec.Volumes[i].Projected.Sources[j]
				source.ClusterTrustBundle, source.PodCertificate = nil, nil
			}
		}
	}
}

// qosClass returns the class of a Pod: guaranteed if all containers have limits for CPU and memory that their requests equal,
// best effort if there are neither limits nor requests.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	lists := []*corev1.ResourceRequirements{}
	for _, c := range allContainers(spec) {
		lists = append(lists, &c.Resources)
	}
	if spec.Resources != nil {
		lists = []*corev1.ResourceRequirements{spec.Resources}
	}
	requests, limits, guaranteed := corev1.ResourceList{}, corev1.ResourceList{}, true
	add := func(total, list corev1.ResourceList) (found int) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if quantity := list[name]; quantity.Sign() > 0 {
				sum := total[name].DeepCopy()
				sum.Add(quantity)
				total[name] = sum
				found++
			}
		}
		return found
	}
	for _, list := range lists {
		add(requests, list.Requests)
		guaranteed = add(limits, list.Limits) == 2 && guaranteed
	}
	equal := func(name corev1.ResourceName) bool {
		limit, exists := limits[name]
		return exists && limit.Cmp(requests[name]) == 0
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return corev1.PodQOSBestEffort
	case guaranteed && len(requests) == len(limits) && !slices.ContainsFunc(sortedKeys(requests), func(name corev1.ResourceName) bool { return !equal(name) }):
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// addLabelKeys adds the values of the Pod's own labels to the selectors that name their keys.
func addLabelKeys(pod *corev1.Pod) {
	add := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, exists := pod.Labels[key]; exists && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	term := func(t *corev1.PodAffinityTerm) {
		add(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		add(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	terms := func(hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm) {
		for i := range hard {
			term(&hard[i])
		}
		for i := range soft {
			term(&soft[i].PodAffinityTerm)
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		add(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// podAndMetadata checks what new and updated Pods have in common.
func (p *podProblems) podAndMetadata(pod, old *corev1.Pod) {
	p.spec, p.metadata = &pod.Spec, &pod.ObjectMeta
	p.anyPolicy = old != nil && hasPolicy(&old.Spec)
	p.add(apiserver.ValidateCoreMetadata(pod, true, validation.NameIsDNSSubdomain)...)
	p.podAnnotations(pod.Annotations, field.NewPath("metadata", "annotations"))
	spec := field.NewPath("spec")
	p.podSpec(spec)
	for i, v := range pod.Spec.Volumes {
		if v.Projected == nil || pod.Spec.ServiceAccountName != "" {
			continue
		}
		for j, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				p.forbidden(spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
	for i, c := range pod.Spec.Containers {
		p.imageWithoutSpaces(c.Image, spec.Child("containers").Index(i))
	}
	for i, c := range pod.Spec.InitContainers {
		p.imageWithoutSpaces(c.Image, spec.Child("initContainers").Index(i))
	}
}

func validateNewPod(pod *corev1.Pod) field.ErrorList {
	var p podProblems
	p.podAndMetadata(pod, nil)
	spec := field.NewPath("spec")
	if len(pod.Spec.EphemeralContainers) > 0 {
		p.forbidden(spec.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		p.forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	return p.list
}

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
		p.forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"+
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
	rest.ActiveDeadlineSeconds, rest.SchedulingGates, rest.Tolerations = old.ActiveDeadlineSeconds, old.SchedulingGates, old.Tolerations
	if len(old.SchedulingGates) == 0 {
		return &rest
	}
	path := field.NewPath("spec", "nodeSelector")
	for key, value := range old.NodeSelector {
		if now, exists := spec.NodeSelector[key]; !exists || now != value {
			p.invalid(path, spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	rest.NodeSelector = old.NodeSelector
	return &rest
}

func (p *podProblems) annotationUpdate(pod, old *corev1.Pod) {
	const key = corev1.MirrorPodAnnotationKey
	value, exists := pod.Annotations[key]
	before, existed := old.Annotations[key]
	switch path := field.NewPath("metadata", "annotations").Key(key); {
	case existed && (!exists || value != before):
		p.forbidden(path, "may not remove or update mirror pod annotation")
	case exists && !existed:
		p.forbidden(path, "may not add mirror pod annotation")
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
	p.transitions(status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.Containers, path.Child("containerStatuses"))
	p.transitions(status.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.InitContainers, path.Child("initContainerStatuses"))
	p.transitions(status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, nil, path.Child("ephemeralContainerStatuses"))
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
func (p *podProblems) transitions(statuses, old []corev1.ContainerStatus, containers []corev1.Container, path *field.Path) {
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
			if in := rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn; slices.Contains(rule.ExitCodes.Values, code) == in {
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
