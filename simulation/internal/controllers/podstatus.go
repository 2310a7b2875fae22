package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func terminated(code int32, started, ended time.Time) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: seconds(started), FinishedAt: seconds(ended),
	}
}

// seconds is the form of times in objects.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// status returns the status of a Pod. ended is the state of its containers if they do not run any more.
func (r *podRun) status(
	pod *corev1.Pod, phase corev1.PodPhase, ready bool, ended *corev1.ContainerStateTerminated,
) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	if phase == corev1.PodPending && r.waiting != "ImagePullBackOff" {
		phase = corev1.PodRunning // between two runs
	}
	status.Phase, status.ObservedGeneration = phase, pod.Generation
	started := seconds(r.podStarted)
	status.StartTime = &started
	status.HostIP, status.HostIPs = nodeAddress, []corev1.HostIP{{IP: nodeAddress}}
	status.PodIP, status.PodIPs = r.address, []corev1.PodIP{{IP: r.address}}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(r.started)}}
	switch {
	case ended != nil:
		state = corev1.ContainerState{Terminated: ended}
	case r.waiting != "":
		state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: r.waiting}}
	}
	status.ContainerStatuses, status.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		running := state.Running != nil
		container := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, RestartCount: r.restarts, Ready: ready,
			Started: &running, State: state, Resources: c.Resources.DeepCopy(),
		}
		if ended == nil {
			container.LastTerminationState.Terminated = r.last
		}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	for _, c := range pod.Spec.InitContainers {
		container := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(bool), Resources: c.Resources.DeepCopy(),
			State: corev1.ContainerState{Terminated: terminated(0, r.podStarted, r.podStarted)},
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && ended == nil {
			*container.Started = true
			container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, container)
	}
	setEphemeral(status, pod, ended)
	setPodCondition(pod, status, corev1.PodCondition{
		Type:   corev1.PodReadyToStartContainers,
		Status: conditionStatus(ended == nil),
	})
	for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized} {
		setPodCondition(pod, status, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
	setReadiness(status, pod, ready)
	return status
}

// observeGeneration reports in a status that the kubelet has seen the current generation of the Pod.
func observeGeneration(status *corev1.PodStatus, pod *corev1.Pod) {
	status.ObservedGeneration = pod.Generation
	for i := range status.Conditions {
		switch c := &status.Conditions[i]; c.Type {
		case corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
			corev1.PodReady:
			c.ObservedGeneration = pod.Generation
		}
	}
}

// setEphemeral adds the ephemeral containers to the status of a Pod. They start at once, and end with the Pod.
func setEphemeral(status *corev1.PodStatus, pod *corev1.Pod, ended *corev1.ContainerStateTerminated) {
	before := status.EphemeralContainerStatuses
	status.EphemeralContainerStatuses = nil
	for _, c := range pod.Spec.EphemeralContainers {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(time.Now())}}
		if i := slices.IndexFunc(before, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			state = before[i].State
		}
		if ended != nil && state.Running != nil {
			state = corev1.ContainerState{Terminated: ended}
		}
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: state,
		})
	}
}

// setReadiness sets the conditions about readiness in the status of a Pod.
func setReadiness(status *corev1.PodStatus, pod *corev1.Pod, ready bool) {
	if !ready {
		setPodCondition(pod, status, notReady(corev1.ContainersReady, pod, status.Phase))
		setPodCondition(pod, status, notReady(corev1.PodReady, pod, status.Phase))
		return
	}
	setPodCondition(pod, status, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	podReady := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if closed := closedGates(pod); len(closed) > 0 {
		podReady = corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady",
			Message: strings.Join(closed, ", "),
		}
	}
	setPodCondition(pod, status, podReady)
}

// notReady returns a condition of a Pod that is not ready.
func notReady(t corev1.PodConditionType, pod *corev1.Pod, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse}
	switch phase {
	case corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case corev1.PodFailed:
		c.Reason = "PodFailed"
	default:
		var names []string
		for _, container := range pod.Spec.Containers {
			names = append(names, container.Name)
		}
		c.Reason = "ContainersNotReady"
		c.Message = "containers with unready status: [" + strings.Join(names, " ") + "]"
	}
	return c
}

// closedGates returns what is missing for the readiness gates of a Pod.
func closedGates(pod *corev1.Pod) (closed []string) {
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType
		})
		switch {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s",
				gate.ConditionType, pod.Status.Conditions[i].Status))
		}
	}
	return closed
}

func conditionStatus(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// setPodCondition sets a condition for the current generation of a Pod. It reports whether the condition changed.
func setPodCondition(pod *corev1.Pod, status *corev1.PodStatus, condition corev1.PodCondition) bool {
	condition.LastTransitionTime, condition.ObservedGeneration = seconds(time.Now()), pod.Generation
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	old := &status.Conditions[i]
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	if equality.Semantic.DeepEqual(*old, condition) {
		return false
	}
	*old = condition
	return true
}
