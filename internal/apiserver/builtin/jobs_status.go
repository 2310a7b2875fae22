package builtin

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return conditionIs(job, kind, corev1.ConditionTrue)
}

func conditionIs(job *batchv1.Job, kind batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == status
	})
}

// validateJobStatus checks an update of the status. Most rules apply only if the update changes what they are about.
func validateJobStatus(job, old *batchv1.Job) field.ErrorList {
	u := newJobStatusUpdate(job, old)
	s := &job.Status
	u.counts(u.path, []count{{"active", s.Active}, {"succeeded", s.Succeeded}, {"failed", s.Failed}})
	nonNegativePointer(&u.problems, u.path.Child("ready"), s.Ready)
	nonNegativePointer(&u.problems, u.path.Child("terminating"), s.Terminating)
	u.uncounted(s.UncountedTerminatedPods, u.path.Child("uncountedTerminatedPods"))
	u.completion()
	u.finishedJob()
	u.statusIndexes(job, old, u.path)
	u.podsOfFinishedJob()
	u.contradictions()
	u.decreases()
	return u.list
}

// jobStatusUpdate is an update of the status of a Job: what is true now, and what the update has changed.
type jobStatusUpdate struct {
	problems
	job, old *batchv1.Job
	path     *field.Path

	complete, failed, failing, succeeding, finished           bool
	completeChanged, failedChanged, failingChanged            bool
	succeedingChanged, finishedChanged                        bool
	startChanged, endChanged, activeChanged, failedSetChanged bool
}

func newJobStatusUpdate(job, old *batchv1.Job) *jobStatusUpdate {
	u := &jobStatusUpdate{job: job, old: old, path: field.NewPath("status")}
	s, before := &job.Status, &old.Status
	u.complete, u.completeChanged = u.condition(batchv1.JobComplete)
	u.failed, u.failedChanged = u.condition(batchv1.JobFailed)
	u.failing, u.failingChanged = u.condition(batchv1.JobFailureTarget)
	u.succeeding, u.succeedingChanged = u.condition(batchv1.JobSuccessCriteriaMet)
	u.finished = u.complete || u.failed
	u.finishedChanged = u.finished != (hasCondition(old, batchv1.JobComplete) || hasCondition(old, batchv1.JobFailed))
	u.startChanged = !s.StartTime.Equal(before.StartTime)
	u.endChanged = !s.CompletionTime.Equal(before.CompletionTime)
	u.activeChanged = s.Active != before.Active
	u.failedSetChanged = !equality.Semantic.DeepEqual(s.FailedIndexes, before.FailedIndexes)
	return u
}

// condition returns whether a condition is true, and whether the update has changed that.
func (u *jobStatusUpdate) condition(kind batchv1.JobConditionType) (isTrue, changed bool) {
	isTrue = hasCondition(u.job, kind)
	return isTrue, isTrue != hasCondition(u.old, kind)
}

// rejectIf adds an error about the conditions.
func (u *jobStatusUpdate) rejectIf(broken bool, detail string) {
	if broken {
		u.invalid(u.path.Child("conditions"), field.OmitValueType{}, detail)
	}
}

// completion checks the conditions that exclude or require each other, and the time of completion.
func (u *jobStatusUpdate) completion() {
	s, end := &u.job.Status, u.path.Child("completionTime")
	u.rejectIf((u.completeChanged || u.failedChanged) && u.complete && u.failed,
		"cannot set Complete=True and Failed=true conditions")
	u.rejectIf((u.completeChanged || u.failingChanged) && u.complete && u.failing,
		"cannot set Complete=True and FailureTarget=true conditions")
	if (u.completeChanged || u.endChanged) && s.CompletionTime != nil && !u.complete {
		u.invalid(end, s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	}
	if (u.completeChanged || u.endChanged) && s.CompletionTime == nil && u.complete {
		u.required(end, "completionTime is required for Complete jobs")
	}
	if (u.startChanged || u.endChanged) && s.StartTime != nil && s.CompletionTime.Before(s.StartTime) &&
		s.CompletionTime != nil {
		u.invalid(end, s.CompletionTime, "must be equal to or after `startTime`")
	}
	u.rejectIf((u.failedChanged || u.failedSetChanged) && u.failed && !u.failing,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	u.rejectIf((u.completeChanged || u.succeedingChanged) && u.complete && !u.succeeding,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
}

// finishedJob checks the fields that a finished Job must have, or must not have.
func (u *jobStatusUpdate) finishedJob() {
	s, spec := &u.job.Status, &u.job.Spec
	if !u.finished {
		return
	}
	if (u.finishedChanged || u.activeChanged) && s.Active > 0 {
		u.invalid(u.path.Child("active"), s.Active, "active>0 is invalid for finished job")
	}
	nothingToDo := *spec.Suspend && spec.Completions != nil && *spec.Completions == 0
	if (u.finishedChanged || u.startChanged) && !nothingToDo && s.StartTime == nil {
		u.required(u.path.Child("startTime"), "startTime is required for finished job")
	}
	if pods := s.UncountedTerminatedPods; pods != nil && len(pods.Failed)+len(pods.Succeeded) > 0 &&
		(u.finishedChanged || !equality.Semantic.DeepEqual(pods, u.old.Status.UncountedTerminatedPods)) {
		u.invalid(u.path.Child("uncountedTerminatedPods"), internal(pods), "must be empty for finished job")
	}
}

// podsOfFinishedJob checks the numbers of Pods that end or are ready.
func (u *jobStatusUpdate) podsOfFinishedJob() {
	s, before := &u.job.Status, &u.old.Status
	if u.finished && s.Terminating != nil && *s.Terminating > 0 &&
		(u.finishedChanged || !equality.Semantic.DeepEqual(s.Terminating, before.Terminating)) {
		u.invalid(u.path.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job")
	}
	if s.Ready != nil && *s.Ready > s.Active &&
		(u.activeChanged || !equality.Semantic.DeepEqual(s.Ready, before.Ready)) {
		u.invalid(u.path.Child("ready"), *s.Ready, "cannot set more ready pods than active")
	}
}

// contradictions checks the conditions that exclude each other in every update, and those that cannot be removed.
func (u *jobStatusUpdate) contradictions() {
	u.rejectIf(u.succeeding && u.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	u.rejectIf(u.succeeding && u.failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	u.rejectIf(u.job.Spec.SuccessPolicy != nil && !u.succeeding && u.complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		u.rejectIf(hasCondition(u.old, kind) && !hasCondition(u.job, kind),
			fmt.Sprintf("cannot disable the terminal %s=True condition", kind))
	}
}

// decreases checks the fields that only grow, or cannot be changed once they are set.
func (u *jobStatusUpdate) decreases() {
	s, before, spec := &u.job.Status, &u.old.Status, &u.job.Spec
	if s.Failed < before.Failed {
		u.invalid(u.path.Child("failed"), s.Failed, "cannot decrease the failed counter")
	}
	scalable := isIndexed(u.job) && equality.Semantic.DeepEqual(spec.Completions, spec.Parallelism)
	if s.Succeeded < before.Succeeded && !scalable {
		u.invalid(u.path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	}
	if s.CompletionTime != nil && before.CompletionTime != nil && u.endChanged {
		u.invalid(u.path.Child("completionTime"), s.CompletionTime, isImmutable)
	}
	resuming := hasCondition(u.old, batchv1.JobSuspended) &&
		conditionIs(u.job, batchv1.JobSuspended, corev1.ConditionFalse)
	if u.startChanged && before.StartTime != nil && !resuming && !*spec.Suspend {
		u.invalid(u.path.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set")
	}
	succeeded := hasCondition(u.old, batchv1.JobSuccessCriteriaMet)
	u.rejectIf(succeeded && !u.succeeding, "cannot disable the SuccessCriteriaMet=True condition")
	u.rejectIf(hasCondition(u.old, batchv1.JobComplete) && !succeeded && u.succeeding,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

func (p *problems) uncounted(pods *batchv1.UncountedTerminatedPods, path *field.Path) {
	if pods == nil {
		return
	}
	seen := names{}
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", pods.Succeeded}, {"failed", pods.Failed}} {
		for i, uid := range list.uids {
			if path := path.Child(list.name).Index(i); uid == "" {
				p.invalid(path, uid, "must not be empty")
			} else {
				if seen[string(uid)] {
					p.add(field.Duplicate(path, uid))
				}
				seen[string(uid)] = true
			}
		}
	}
}

// statusIndexes checks the completed and failed indexes, if they change.
func (p *problems) statusIndexes(job, old *batchv1.Job, path *field.Path) {
	s, completions := &job.Status, job.Spec.Completions
	completed, failed := path.Child("completedIndexes"), path.Child("failedIndexes")
	completedChanged := s.CompletedIndexes != old.Status.CompletedIndexes
	failedChanged := !equality.Semantic.DeepEqual(s.FailedIndexes, old.Status.FailedIndexes)
	var done, broken []interval
	if completions != nil {
		var err error
		if done, err = parseIndexes(s.CompletedIndexes, *completions); err != nil && completedChanged {
			p.invalid(completed, s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %v", err))
		}
		if s.FailedIndexes != nil && job.Spec.BackoffLimitPerIndex != nil {
			if broken, err = parseIndexes(*s.FailedIndexes, *completions); err != nil && failedChanged {
				p.invalid(failed, s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %v", err))
			}
		}
	}
	if completedChanged && s.CompletedIndexes != "" && !isIndexed(job) {
		p.invalid(completed, s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed "+
			"completion mode")
	}
	if failedChanged && s.FailedIndexes != nil && job.Spec.BackoffLimitPerIndex == nil {
		p.invalid(failed, *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if !completedChanged && !failedChanged {
		return
	}
	for _, d := range done {
		for _, b := range broken {
			if d.first <= b.last && b.first <= d.last {
				p.invalid(failed, *s.FailedIndexes,
					fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", max(d.first, b.first)))
				return
			}
		}
	}
}
