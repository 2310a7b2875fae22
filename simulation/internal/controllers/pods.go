package controllers

import (
	"context"
	"fmt"
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
	return next, k.report(ctx, kind, pod, status)
}

// report updates the status of a Pod if it has changed.
func (k *kubelet) report(ctx context.Context, kind *apiserver.Kind, pod *corev1.Pod, status *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(*status, pod.Status) {
		return nil
	}
	updated := pod.DeepCopy()
	updated.Status = *status
	return ignoreNotFound(k.requests.update(ctx, kind, updated, "status"))
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

// stop ends the containers of a Pod that is being deleted, and removes the Pod.
func (k *kubelet) stop(ctx context.Context, kind *apiserver.Kind, pod *corev1.Pod, run *podRun) (time.Time, error) {
	now := time.Now()
	var grace time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	began := pod.DeletionTimestamp.Add(-grace)
	if stopped := began.Add(min(grace, run.behavior.StopAfter)); stopped.After(now) && !terminal(pod) {
		status := pod.Status.DeepCopy()
		observeGeneration(status, pod)
		return stopped, k.report(ctx, kind, pod, status)
	}
	if !terminal(pod) && len(pod.Finalizers) > 0 {
		const sigterm = 143
		status := run.status(pod, corev1.PodFailed, false, terminated(sigterm, run.started, now))
		if err := k.report(ctx, kind, pod, status); err != nil {
			return time.Time{}, err
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
