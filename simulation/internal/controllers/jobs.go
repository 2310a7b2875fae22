package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const (
	// jobDelay is the time from a change of a Pod until the controller works on its Job.
	jobDelay = time.Second
	// The delay of the Pod that replaces a failed one doubles with each failure.
	firstPodBackoff = 10 * time.Second
	maxPodBackoff   = 10 * time.Minute
)

// jobs models the Job controller, and the controller that deletes finished Jobs.
type jobs struct {
	*Manager
	requests, deleter *requester
	backoffs          map[types.UID]podBackoff
}

// podBackoff counts the failures of a Job's Pods since the last one that succeeded.
type podBackoff struct {
	failures int
	last     time.Time
}

func jobResource() schema.GroupResource {
	return schema.GroupResource{Group: "batch", Resource: "jobs"}
}

func (j *jobs) String() string { return "job-controller" }

func (j *jobs) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if job, ok := c.Object.(*batchv1.Job); ok {
		add(objectKey(job).String(), now)
	} else if job, ok := c.Old.(*batchv1.Job); ok {
		delete(j.backoffs, job.UID)
		for uid := range j.state.dependents[job.UID] {
			if pod, ok := j.state.byUID[uid].obj.(*corev1.Pod); ok && j.orphaned(pod) {
				add(orphanPrefix+objectKey(pod).String(), now)
			}
		}
	}
	if pod, ok := c.Object.(*corev1.Pod); ok && j.orphaned(pod) {
		add(orphanPrefix+objectKey(pod).String(), now)
	}
	due := now.Add(jobDelay)
	if c.Old == nil || c.Object == nil {
		due = now
	}
	kind := batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()
	j.owners(c, kind, jobResource(), podResource(), func(key string) { add(key, due) })
}

// managedElsewhere reports whether another controller manages a Job.
func managedElsewhere(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// jobPass is one pass of the controller over a Job.
type jobPass struct {
	*jobs
	kind    *apiserver.Kind
	job     *batchv1.Job // a copy, which changes
	stored  batchv1.JobStatus
	pods    []*corev1.Pod
	indexes []int // with a Pod that succeeded; sorted
	// failedIndexes are the indexes with more failures than backoffLimitPerIndex; sorted. awaited are the failed Pods
	// that keep their finalizer until the next Pod of their index has their number of failures.
	failedIndexes []int
	awaited       map[int]*corev1.Pod
	// succeeded and failed include Pods that are not in the status.
	succeeded, failed          int32
	active, ready, terminating int32
	backoff                    podBackoff
	finished                   *batchv1.JobCondition
	nextSync                   time.Time
}

func (j *jobs) sync(ctx context.Context, key string) (time.Time, error) {
	if pod, isOrphan := strings.CutPrefix(key, orphanPrefix); isOrphan {
		return time.Time{}, j.syncOrphan(ctx, pod)
	}
	namespace, name, _ := strings.Cut(key, "/")
	job, k := get[*batchv1.Job](j.Manager, jobResource(), namespace, name)
	if job == nil || managedElsewhere(job) {
		return time.Time{}, nil
	}
	if c := finishedCondition(job); c != nil {
		return j.expire(ctx, k, job, c)
	}
	var candidates []*corev1.Pod
	for _, obj := range j.list(podResource(), namespace) {
		candidates = append(candidates, obj.(*corev1.Pod))
	}
	pods, err := claim(ctx, j.requests, j.Manager.kind(podResource()), job, k, selectorOf(job), candidates)
	if err != nil {
		return time.Time{}, err
	}
	p := &jobPass{jobs: j, kind: k, job: job.DeepCopy(), stored: job.Status, pods: pods}
	err = p.run(ctx)
	return p.nextSync, ignoreNotFound(err)
}

// expire deletes a finished Job ttlSecondsAfterFinished after its end.
func (j *jobs) expire(
	ctx context.Context, k *apiserver.Kind, job *batchv1.Job, finished *batchv1.JobCondition,
) (time.Time, error) {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil || job.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	if due := finished.LastTransitionTime.Add(time.Duration(*ttl) * time.Second); due.After(time.Now()) {
		return due, nil
	}
	policy, uid, resourceVersion := metav1.DeletePropagationForeground, job.UID, job.ResourceVersion
	return time.Time{}, ignoreNotFound(j.deleter.delete(ctx, k, job, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
	}))
}

func (p *jobPass) run(ctx context.Context) error {
	status := &p.job.Status
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	var activePods []*corev1.Pod
	for _, pod := range p.pods {
		switch {
		case active(pod):
			activePods = append(activePods, pod)
			if ready(pod) {
				p.ready++
			}
		case !terminal(pod):
			p.terminating++
		}
	}
	p.active = int32(len(activePods))
	p.count()
	if status.StartTime == nil && !p.suspended() {
		now := seconds(time.Now())
		status.StartTime = &now
	}
	p.finished = p.outcome()
	var failure error
	if p.finished != nil {
		for _, pod := range activePods {
			if err := ignoreNotFound(p.requests.delete(ctx, p.podKind(), pod, metav1.DeleteOptions{})); err != nil {
				failure, p.finished = err, nil
				continue
			}
			p.deleted(pod)
		}
	} else {
		failure = p.manage(ctx, activePods)
	}
	status.Active, status.Ready, status.Terminating = p.active, &p.ready, &p.terminating
	if err := p.track(ctx); err != nil {
		return err
	}
	return failure
}

func (p *jobPass) podKind() *apiserver.Kind { return p.Manager.kind(podResource()) }

func (p *jobPass) suspended() bool { return isTrue(p.job.Spec.Suspend) }

func (p *jobPass) indexed() bool {
	return p.job.Spec.CompletionMode != nil && *p.job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// deleted counts a Pod that was deleted.
func (p *jobPass) deleted(pod *corev1.Pod) {
	p.active--
	p.terminating++
	if ready(pod) {
		p.ready--
	}
}

func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// manage creates and deletes Pods, and completes the Job if it needs no more.
func (p *jobPass) manage(ctx context.Context, activePods []*corev1.Pod) error {
	var failure error
	managed := p.job.DeletionTimestamp == nil
	if managed {
		failure = p.scale(ctx, activePods)
	}
	completions := p.job.Spec.Completions
	switch {
	case p.active == 0 && (completions == nil && p.succeeded > 0 || completions != nil && p.succeeded >= *completions):
		p.finished = newJobCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue,
			batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	case managed && p.suspended():
		if p.setCondition(newJobCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended",
			"Job suspended")) {
			p.job.Status.StartTime = nil
		}
	case managed:
		if p.setCondition(newJobCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")) {
			now := seconds(time.Now())
			p.job.Status.StartTime = &now
		}
	}
	return failure
}

// scale creates missing Pods and deletes superfluous ones.
func (p *jobPass) scale(ctx context.Context, activePods []*corev1.Pod) error {
	wanted := *p.job.Spec.Parallelism
	switch completions := p.job.Spec.Completions; {
	case p.suspended():
		wanted = 0
	case completions != nil:
		wanted = max(0, min(wanted, *completions-p.succeeded))
	case p.succeeded > 0:
		wanted = p.active
	}
	if superfluous := p.superfluous(activePods, int(p.active-wanted)); len(superfluous) > 0 {
		var failure error
		for _, pod := range superfluous[:min(len(superfluous), burst)] {
			err := p.requests.removeTrackingFinalizer(ctx, p.podKind(), pod)
			if err == nil {
				err = p.requests.delete(ctx, p.podKind(), pod, metav1.DeleteOptions{})
			}
			if err = ignoreNotFound(err); err == nil {
				p.deleted(pod)
			} else {
				failure = err
			}
		}
		return failure
	}
	missing := wanted - p.active
	if p.replacesOnlyFailed() {
		missing -= p.terminating
	}
	if missing <= 0 {
		return nil
	}
	if p.backoff.failures > 0 && !p.limitsIndexes() {
		if due := p.backoff.last.Add(podDelay(p.backoff.failures)); due.After(time.Now()) {
			p.nextSync = earliest(p.nextSync, due)
			return nil
		}
	}
	indexes := p.missingIndexes(activePods, int(missing))
	if p.indexed() {
		missing = int32(len(indexes))
	}
	created, err := p.requests.createPods(ctx, p.podKind(), int(min(missing, burst)), func() *corev1.Pod {
		pod := podFromTemplate(&p.job.Spec.Template, p.job, p.kind)
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
		if p.indexed() {
			setIndex(pod, p.job.Name, indexes[0])
			p.setFailures(pod, indexes[0])
			indexes = indexes[1:]
		}
		return pod
	})
	p.active += int32(created)
	return err
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
