package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completionIndex returns the index of a Pod, or -1.
func completionIndex(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil {
		return -1
	}
	return n
}

// setIndex makes a Pod the one with an index of an indexed Job.
func setIndex(pod *corev1.Pod, job string, index int) {
	text := strconv.Itoa(index)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	pod.Spec.Hostname = job + "-" + text
	pod.GenerateName = pod.Spec.Hostname + "-"
	variable := corev1.EnvVar{
		Name: "JOB_COMPLETION_INDEX",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']",
		}},
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if !slices.ContainsFunc(containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == variable.Name }) {
				containers[i].Env = append(containers[i].Env, variable)
			}
		}
	}
}

// validIndex reports whether an index is one of the Job.
func (p *jobPass) validIndex(index int) bool {
	return index >= 0 && index < int(*p.job.Spec.Completions)
}

// limitsIndexes reports whether each index has a number of retries of its own.
func (p *jobPass) limitsIndexes() bool { return p.indexed() && p.job.Spec.BackoffLimitPerIndex != nil }

// failures returns the numbers of failures of earlier Pods of a Pod's index: of those that count, and of those that a
// podFailurePolicy ignores.
func failures(pod *corev1.Pod) (counted, ignored int) {
	number := func(annotation string) int {
		n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
		if err != nil {
			return 0
		}
		return max(0, int(n))
	}
	return number(batchv1.JobIndexFailureCountAnnotation), number(batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// setFailures sets the numbers of failures of the new Pod of an index.
func (p *jobPass) setFailures(pod *corev1.Pod, index int) {
	if !p.limitsIndexes() {
		return
	}
	var counted, ignored int
	if replaced := p.awaited[index]; replaced != nil {
		counted, ignored = failures(replaced)
		if counts, _ := p.matchFailure(replaced); counts {
			counted++
		} else {
			ignored++
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(counted))
	if ignored > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexIgnoredFailureCountAnnotation,
			strconv.Itoa(ignored))
	}
}

// countIndexes sets the indexes that succeeded and failed, and the Pods that wait for a Pod in their place.
func (p *jobPass) countIndexes() {
	completions := int(*p.job.Spec.Completions)
	p.indexes = parseIndexes(p.job.Status.CompletedIndexes, completions)
	if p.limitsIndexes() && p.job.Status.FailedIndexes != nil {
		p.failedIndexes = parseIndexes(*p.job.Status.FailedIndexes, completions)
	}
	running := map[int]bool{}
	for _, pod := range p.pods {
		index := completionIndex(pod)
		if active(pod) {
			running[index] = true
		}
		if !tracked(pod) || !p.validIndex(index) {
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded {
			p.indexes = append(p.indexes, index)
		}
		if p.limitsIndexes() && p.indexFailed(pod) {
			p.failedIndexes = append(p.failedIndexes, index)
		}
	}
	for _, indexes := range []*[]int{&p.indexes, &p.failedIndexes} {
		slices.Sort(*indexes)
		*indexes = slices.Compact(*indexes)
	}
	p.succeeded = int32(len(p.indexes))
	if !p.limitsIndexes() {
		return
	}
	p.awaited = map[int]*corev1.Pod{}
	total := func(pod *corev1.Pod) int {
		counted, ignored := failures(pod)
		return counted + ignored
	}
	for _, pod := range p.pods {
		index := completionIndex(pod)
		if !tracked(pod) || !p.validIndex(index) || !p.podFailed(pod) || running[index] ||
			slices.Contains(p.indexes, index) || slices.Contains(p.failedIndexes, index) {
			continue
		}
		if last := p.awaited[index]; last == nil || total(last) <= total(pod) && !endOf(pod).Before(endOf(last)) {
			p.awaited[index] = pod
		}
	}
}

// indexFailed reports whether a Pod is the last one of its index.
func (p *jobPass) indexFailed(pod *corev1.Pod) bool {
	if !p.podFailed(pod) {
		return false
	}
	counts, rule := p.matchFailure(pod)
	if rule.action == batchv1.PodFailurePolicyActionFailIndex {
		return true
	}
	counted, _ := failures(pod)
	return counts && counted >= int(*p.job.Spec.BackoffLimitPerIndex)
}

// indexedOutcome returns the condition with which an indexed Job is about to end, or nil.
func (p *jobPass) indexedOutcome() *batchv1.JobCondition {
	spec, failed := &p.job.Spec, len(p.failedIndexes)
	switch {
	case spec.MaxFailedIndexes != nil && failed > int(*spec.MaxFailedIndexes):
		return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue,
			batchv1.JobReasonMaxFailedIndexesExceeded,
			"Job has exceeded the specified maximal number of failed indexes")
	case failed > 0 && failed+len(p.indexes) >= int(*spec.Completions):
		return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonFailedIndexes,
			"Job has failed indexes")
	case spec.SuccessPolicy == nil || len(p.indexes) == 0:
		return nil
	}
	for i, rule := range spec.SuccessPolicy.Rules {
		required := p.indexes // without a list, any of them
		if rule.SucceededIndexes != nil {
			required = parseIndexes(*rule.SucceededIndexes, int(*spec.Completions))
		}
		succeeded := 0
		for _, index := range required {
			if slices.Contains(p.indexes, index) {
				succeeded++
			}
		}
		all := rule.SucceededIndexes != nil && len(required) > 0 && succeeded == len(required)
		if all || rule.SucceededCount != nil && len(required) > 0 && succeeded >= int(*rule.SucceededCount) {
			return newJobCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy,
				fmt.Sprintf("Matched rules at index %d", i))
		}
	}
	return nil
}

// superfluous returns the active Pods that are to be deleted: n of them, and all whose index is invalid or has another
// Pod.
func (p *jobPass) superfluous(activePods []*corev1.Pod, n int) (superfluous []*corev1.Pod) {
	var left []*corev1.Pod
	activePods = slices.Clone(activePods)
	sortForDeletion(activePods, nil)
	slices.Reverse(activePods) // of the Pods with one index, the one remains that would be deleted last
	seen := map[int]bool{}
	for _, pod := range activePods {
		index := completionIndex(pod)
		if p.indexed() && (!p.validIndex(index) || seen[index]) {
			superfluous = append(superfluous, pod)
		} else {
			left = append(left, pod)
		}
		seen[index] = true
	}
	slices.Reverse(left)
	slices.SortStableFunc(superfluous, func(a, b *corev1.Pod) int {
		return cmp.Compare(completionIndex(a), completionIndex(b))
	})
	return append(superfluous, left[:max(0, min(n-len(superfluous), len(left)))]...)
}

// podDelay returns the time from the latest of some failures until the next Pod.
func podDelay(failures int) time.Duration {
	return min(firstPodBackoff<<min(failures-1, 10), maxPodBackoff)
}

// missingIndexes returns the first n indexes that need a Pod, without those for which it is too early.
func (p *jobPass) missingIndexes(activePods []*corev1.Pod, n int) (missing []int) {
	if !p.indexed() {
		return nil
	}
	present := map[int]bool{}
	for _, pod := range activePods {
		present[completionIndex(pod)] = true
	}
	for _, pod := range p.pods {
		if p.replacesOnlyFailed() && pod.DeletionTimestamp != nil && !terminal(pod) {
			present[completionIndex(pod)] = true
		}
	}
	var wait time.Time
	for i := 0; i < int(*p.job.Spec.Completions) && n > 0; i++ {
		if present[i] || slices.Contains(p.indexes, i) || slices.Contains(p.failedIndexes, i) {
			continue
		}
		n--
		if replaced := p.awaited[i]; replaced != nil {
			counted, ignored := failures(replaced)
			if due := endOf(replaced).Add(podDelay(counted + ignored + 1)); due.After(time.Now()) {
				wait = earliest(wait, due)
				continue
			}
		}
		missing = append(missing, i)
	}
	if len(missing) == 0 && !wait.IsZero() {
		p.nextSync = earliest(p.nextSync, wait)
	}
	return missing
}

// parseIndexes returns the numbers below end of a text such as 0-2,5.
func parseIndexes(text string, end int) (indexes []int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil {
			continue // empty, or not written by this controller
		}
		for i := from; i <= min(to, end-1); i++ {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// formatIndexes is the reverse of parseIndexes.
func formatIndexes(indexes []int) string {
	var parts []string
	for i := 0; i < len(indexes); {
		j := i
		for j+1 < len(indexes) && indexes[j+1] == indexes[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(indexes[i]))
		case 1:
			parts = append(parts, strconv.Itoa(indexes[i]), strconv.Itoa(indexes[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", indexes[i], indexes[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
