package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// PodBehavior is what happens to a Pod. The zero value is a Pod that works: it is ready after 1 s, and if its
// restartPolicy is not Always, its containers end with exit code 0 after 1 s.
type PodBehavior struct {
	// Unschedulable leaves the Pod without a node.
	Unschedulable bool
	// ImagePullFails leaves the containers waiting with the reason ImagePullBackOff. The images are pulled again after
	// 10 s, 20 s, and so on, up to 5 minutes.
	ImagePullFails bool
	// ReadyAfter is the time from the start of the containers until they are ready. Default 1 s; negative: at once.
	ReadyAfter time.Duration
	// NeverReady is true if the containers run, and their readiness probes fail.
	NeverReady bool
	// ExitAfter is the time from the start of the containers until they end with ExitCode. The Pod's restartPolicy
	// decides whether they start again, with the backoff of the kubelet. Default: 1 s if the restartPolicy is OnFailure
	// or Never, otherwise never; negative: never.
	ExitAfter time.Duration
	ExitCode  int32
	// StopAfter is the time that the containers of a deleted Pod take to end, and is at most its grace period. Default:
	// at once.
	StopAfter time.Duration
}

const (
	defaultReadyAfter = time.Second
	defaultExitAfter  = time.Second
	firstRestartDelay = 10 * time.Second
	maxRestartDelay   = 5 * time.Minute

	nodeAddress = "10.1.0.1" // of all nodes
)

// scheduler models the scheduler: it assigns each Pod to the node with the fewest Pods. It ignores the resources that
// Pods request, node selectors, affinities and taints.
type scheduler struct {
	*Manager
	requests *requester
}

func (s *scheduler) String() string { return "default-scheduler" }

func (s *scheduler) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if pod, ok := c.Object.(*corev1.Pod); ok && s.waits(pod) {
		add(objectKey(pod).String(), now)
	}
}

// waits reports whether a Pod waits for a node.
func (s *scheduler) waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && !terminal(pod) &&
		(pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName)
}

func (s *scheduler) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, k := get[*corev1.Pod](s.Manager, podResource(), namespace, name)
	if pod == nil || !s.waits(pod) {
		return time.Time{}, nil
	}
	if s.behavior(pod).Unschedulable {
		return time.Time{}, s.reportUnschedulable(ctx, k, pod)
	}
	binding := &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: s.node()},
	}
	err := s.requests.send(ctx, "POST", path(k, namespace, name, "binding"), jsonType, binding, nil)
	return time.Time{}, ignoreNotFound(err)
}

// node returns the node with the fewest Pods.
func (s *scheduler) node() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := map[string]int{}
	for _, obj := range s.state.objects[podResource()] {
		if pod := obj.(*corev1.Pod); !terminal(pod) {
			pods[pod.Spec.NodeName]++
		}
	}
	return slices.MinFunc(s.nodes, func(a, b string) int { return pods[a] - pods[b] })
}

func (s *scheduler) reportUnschedulable(ctx context.Context, k *apiserver.Kind, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	if !setPodCondition(&pod.Status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: fmt.Sprintf("0/%d nodes are available: %d Insufficient cpu.", len(s.nodes), len(s.nodes)),
	}) {
		return nil
	}
	return ignoreNotFound(s.requests.update(ctx, k, pod, "status"))
}

func (m *Manager) behavior(pod *corev1.Pod) PodBehavior {
	if m.pods == nil {
		return PodBehavior{}
	}
	return m.pods(pod.DeepCopy())
}

// kubelet models the kubelets of all nodes: it reports what happens to the containers of Pods, and removes Pods that
// are being deleted. All containers of a Pod do the same at the same time; init containers end at once.
type kubelet struct {
	*Manager
	requests *requester
	runs     map[types.UID]*podRun
	// addresses is the number of Pods that got an address.
	addresses int
}

// podRun is the state of a Pod on its node.
type podRun struct {
	behavior PodBehavior
	// started is when the containers started; if they wait, when they start.
	started, podStarted time.Time
	waiting             string // why the containers wait; "" if they run
	delays              int    // number of starts and pulls that were delayed or are next to be delayed
	restarts            int32
	last                *corev1.ContainerStateTerminated
	address             string
}

func (k *kubelet) String() string { return "kubelet" }

func (k *kubelet) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if pod, ok := c.Old.(*corev1.Pod); ok && c.Object == nil {
		delete(k.runs, pod.UID)
	}
	if pod, ok := c.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		add(objectKey(pod).String(), now)
	}
}

func (k *kubelet) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, kind := get[*corev1.Pod](k.Manager, podResource(), namespace, name)
	if pod == nil || pod.Spec.NodeName == "" {
		return time.Time{}, nil
	}
	run := k.run(pod)
	if pod.DeletionTimestamp != nil {
		return k.stop(ctx, kind, pod, run)
	}
	if terminal(pod) {
		return time.Time{}, nil
	}
	now := time.Now()
	status, next := k.advance(pod, run, now)
	if equality.Semantic.DeepEqual(*status, pod.Status) {
		return next, nil
	}
	updated := pod.DeepCopy()
	updated.Status = *status
	return next, ignoreNotFound(k.requests.update(ctx, kind, updated, "status"))
}

// run returns the state of a Pod, and starts it if it is new.
func (k *kubelet) run(pod *corev1.Pod) *podRun {
	k.mu.Lock()
	run := k.runs[pod.UID]
	k.mu.Unlock()
	if run != nil {
		return run
	}
	now := time.Now()
	k.addresses++
	run = &podRun{podStarted: now, address: fmt.Sprintf("10.2.%d.%d", k.addresses/254%256, k.addresses%254+1)}
	k.start(pod, run, now)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[pod.UID] = run
	return run
}

// start starts the containers, or tries to pull their images.
func (k *kubelet) start(pod *corev1.Pod, run *podRun, now time.Time) {
	pod = pod.DeepCopy()
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].RestartCount = run.restarts
	}
	run.behavior, run.started, run.waiting = k.behavior(pod), now, ""
	b := &run.behavior
	if b.ReadyAfter == 0 {
		b.ReadyAfter = defaultReadyAfter
	}
	if b.ExitAfter == 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && pod.Spec.RestartPolicy != "" {
		b.ExitAfter = defaultExitAfter
	}
	if b.ImagePullFails {
		run.delays++
		run.delay("ImagePullBackOff", now)
	}
}

// delay makes the containers wait. The delay doubles each time.
func (r *podRun) delay(reason string, now time.Time) {
	r.waiting = reason
	r.started = now.Add(min(firstRestartDelay<<min(r.delays-1, 10), maxRestartDelay))
}

// advance lets the containers of a Pod start and end as is due. It returns the status, and when it changes next.
func (k *kubelet) advance(pod *corev1.Pod, run *podRun, now time.Time) (status *corev1.PodStatus, next time.Time) {
	for {
		switch b := run.behavior; {
		case run.waiting != "":
			if run.started.After(now) {
				return run.status(pod, corev1.PodPending, false, nil), run.started
			}
			if run.waiting == "CrashLoopBackOff" {
				run.restarts++
			}
			k.start(pod, run, run.started)
		case b.ExitAfter > 0 && !run.started.Add(b.ExitAfter).After(now):
			ended := run.started.Add(b.ExitAfter)
			run.last = terminated(b.ExitCode, run.started, ended)
			policy := pod.Spec.RestartPolicy
			if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && b.ExitCode == 0 {
				if b.ExitCode != 0 {
					return run.status(pod, corev1.PodFailed, false, run.last), time.Time{}
				}
				return run.status(pod, corev1.PodSucceeded, false, run.last), time.Time{}
			}
			if run.delays == 0 { // the first restart has no delay
				run.restarts++
				k.start(pod, run, ended)
			} else {
				run.delay("CrashLoopBackOff", ended)
			}
			run.delays++
		default:
			ready := !b.NeverReady && !run.started.Add(b.ReadyAfter).After(now)
			if !ready && !b.NeverReady {
				next = run.started.Add(b.ReadyAfter)
			}
			if exit := run.started.Add(b.ExitAfter); b.ExitAfter > 0 && (next.IsZero() || exit.Before(next)) {
				next = exit
			}
			return run.status(pod, corev1.PodRunning, ready, nil), next
		}
	}
}

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
func (r *podRun) status(pod *corev1.Pod, phase corev1.PodPhase, ready bool, ended *corev1.ContainerStateTerminated) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	if phase == corev1.PodPending && r.waiting != "ImagePullBackOff" {
		phase = corev1.PodRunning // between two runs
	}
	status.Phase = phase
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
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
		running := state.Running != nil
		container := corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: r.restarts, Ready: ready, Started: &running, State: state}
		if ended == nil {
			container.LastTerminationState.Terminated = r.last
		}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	for _, c := range pod.Spec.InitContainers {
		container := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(bool),
			State: corev1.ContainerState{Terminated: terminated(0, r.podStarted, r.podStarted)},
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && ended == nil {
			*container.Started = true
			container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, container)
	}
	setPodCondition(status, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: conditionStatus(ended == nil)})
	setPodCondition(status, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
	notReady := func(t corev1.PodConditionType) corev1.PodCondition {
		c := corev1.PodCondition{
			Type: t, Status: corev1.ConditionFalse, Reason: "ContainersNotReady",
			Message: "containers with unready status: [" + strings.Join(names, " ") + "]",
		}
		switch phase {
		case corev1.PodSucceeded:
			c.Reason, c.Message = "PodCompleted", ""
		case corev1.PodFailed:
			c.Reason, c.Message = "PodFailed", ""
		}
		return c
	}
	containersReady, podReady := notReady(corev1.ContainersReady), notReady(corev1.PodReady)
	if ready {
		containersReady = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
		podReady = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		if closed := closedGates(pod); len(closed) > 0 {
			podReady = corev1.PodCondition{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: strings.Join(closed, ", "),
			}
		}
	}
	setPodCondition(status, containersReady)
	setPodCondition(status, podReady)
	return status
}

// closedGates returns what is missing for the readiness gates of a Pod.
func closedGates(pod *corev1.Pod) (closed []string) {
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, pod.Status.Conditions[i].Status))
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

// setPodCondition reports whether it changed the condition.
func setPodCondition(status *corev1.PodStatus, condition corev1.PodCondition) bool {
	condition.LastTransitionTime = seconds(time.Now())
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	old := &status.Conditions[i]
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	condition.ObservedGeneration = old.ObservedGeneration
	if equality.Semantic.DeepEqual(*old, condition) {
		return false
	}
	*old = condition
	return true
}

// stop ends the containers of a Pod that is being deleted, and removes the Pod.
func (k *kubelet) stop(ctx context.Context, kind *apiserver.Kind, pod *corev1.Pod, run *podRun) (time.Time, error) {
	now := time.Now()
	var grace time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	began := pod.DeletionTimestamp.Add(-grace)
	if stopped := began.Add(min(grace, run.behavior.StopAfter)); stopped.After(now) && !terminal(pod) {
		return stopped, nil
	}
	if !terminal(pod) && len(pod.Finalizers) > 0 {
		const sigterm = 143
		updated := pod.DeepCopy()
		updated.Status = *run.status(pod, corev1.PodFailed, false, terminated(sigterm, run.started, now))
		if err := k.requests.update(ctx, kind, updated, "status"); err != nil {
			return time.Time{}, ignoreNotFound(err)
		}
	}
	if grace == 0 {
		return time.Time{}, nil
	}
	uid, zero := pod.UID, int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}}
	return time.Time{}, ignoreNotFound(k.requests.delete(ctx, kind, pod, options))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
