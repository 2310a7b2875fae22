package builtin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Pods returns the kind Pod.
func Pods() *apiserver.Kind {
	k := apiserver.Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods", corev1.AddToScheme)
	k.ShortNames = []string{"po"}
	k.Status, k.Generation = true, true
	k.Categories = []string{"all"}
	k.Subresources = []string{ephemeralContainers, resize}
	k.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) { defaultPod(obj.(*corev1.Pod)) },
		Admit: func(obj, old apiserver.Object) {
			var before *corev1.Pod
			if old != nil {
				before = old.(*corev1.Pod)
			}
			admit(obj.(*corev1.Pod), before)
		},
		Prepare: preparePod,
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			pod := obj.(*corev1.Pod)
			if old != nil {
				return validatePodUpdate(pod, old.(*corev1.Pod))
			}
			return validateNewPod(pod)
		},
		ValidateSubresource: validatePodSubresource,
		PrepareSubresource:  preparePodSubresource,
		Permit:              permitPod,
		Fields:              podFields,
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
		GracePeriod:   podGracePeriod,
		ReturnDeleted: true,
	}
	return k
}

func preparePod(obj, old apiserver.Object) {
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
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: metav1.Time{Time: time.Now().Truncate(time.Second)},
		}}
	}
	addLabelKeys(pod)
}

func podFields(obj apiserver.Object) fields.Set {
	pod := obj.(*corev1.Pod)
	return fields.Set{
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"spec.schedulerName":      pod.Spec.SchedulerName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"spec.hostNetwork":        strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":            string(pod.Status.Phase), "status.podIP": pod.Status.PodIP,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

func podGracePeriod(obj apiserver.Object, requested *int64) int64 {
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
}

// countChange sets the generation of an updated object, whose specification is spec.
func countChange(obj, old apiserver.Object, spec, before any) {
	obj.SetGeneration(old.GetGeneration())
	if !equality.Semantic.DeepEqual(spec, before) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// admit does what the admission plugins of the real server do to Pods: it sets the priority of Pods without a class,
// and for how long Pods tolerate nodes that are not ready.
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
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(seconds)),
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

// qosClass returns the class of a Pod: guaranteed if all containers have limits for CPU and memory that their requests
// equal, best effort if there are neither limits nor requests.
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
	case guaranteed && len(requests) == len(limits) &&
		!slices.ContainsFunc(sortedKeys(requests), func(name corev1.ResourceName) bool { return !equal(name) }):
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// addLabelKeys adds the values of the Pod's own labels to the selectors that name their keys.
func addLabelKeys(pod *corev1.Pod) {
	add := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, exists := pod.Labels[key]; exists && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
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
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
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
				p.forbidden(spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).
					Child("serviceAccountToken"),
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
