package controllers_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

const jobsPath = "batch/v1/jobs"

// job returns the manifest of a Job. spec is added to its spec.
func job(spec string) string {
	return `{metadata: {name: work}, spec: {parallelism: 2, completions: 3, backoffLimit: 2, manualSelector: true, selector: {matchLabels: {job: work}},
		template: {metadata: {labels: {job: work}}, spec: {restartPolicy: Never, containers: [{name: c, image: a}]}}` + spec + `}}`
}

// outcome returns the numbers and the true conditions of Job work.
func (w *world) outcome() string {
	w.t.Helper()
	s := into[batchv1.Job](w, jobsPath, "one/work").Status
	text := fmt.Sprintf("active=%d ready=%d succeeded=%d failed=%d", s.Active, *s.Ready, s.Succeeded, s.Failed)
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			text += " " + string(c.Type)
		}
	}
	if s.UncountedTerminatedPods != nil && len(s.UncountedTerminatedPods.Failed)+len(s.UncountedTerminatedPods.Succeeded) > 0 {
		text += " uncounted"
	}
	return text
}

func TestJob(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(w *world){
		"succeeds": func(w *world) {
			w.apply(jobsPath, job(""))
			w.run(0)
			w.want("at once", w.outcome(), "active=2 ready=0 succeeded=0 failed=0")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=3 failed=0 SuccessCriteriaMet Complete")
			for _, name := range w.podNames() {
				if pod := into[corev1.Pod](w, podsPath, "one/"+name); len(pod.Finalizers) > 0 || pod.Status.Phase != corev1.PodSucceeded {
					w.t.Errorf("Pod %s has finalizers %v and phase %s", name, pod.Finalizers, pod.Status.Phase)
				}
			}
			w.run(time.Hour)
			w.delete(jobsPath, "one/work", "Background")
			w.run(0)
			w.expect(podsPath, "")
		},
		"fails": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ExitCode: 1} }
			w.apply(jobsPath, job(", parallelism: 1"))
			w.run(9 * time.Second)
			w.want("after the first failure", w.outcome(), "active=0 ready=0 succeeded=0 failed=1")
			w.run(3 * time.Second)
			w.want("after the delay", w.outcome(), "active=1 ready=0 succeeded=0 failed=1")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=0 failed=3 FailureTarget Failed")
			w.want("number of Pods", fmt.Sprint(len(w.podNames())), "3")
		},
		"restarts containers": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				b := controllers.PodBehavior{ExitCode: 1}
				if len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount == 1 {
					b.ExitCode = 0
				}
				return b
			}
			w.apply(jobsPath, strings.Replace(job(", completions: 1"), "Never", "OnFailure", 1))
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=1 failed=0 SuccessCriteriaMet Complete")
		},
		"restarts containers too often": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ExitCode: 1} }
			w.apply(jobsPath, strings.Replace(job(", completions: 1, parallelism: 1"), "Never", "OnFailure", 1))
			w.run(time.Hour)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=0 failed=1 FailureTarget Failed")
		},
		"deadline": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{ExitAfter: -1, StopAfter: 10 * time.Second}
			}
			w.apply(jobsPath, job(", activeDeadlineSeconds: 30"))
			w.run(29 * time.Second)
			w.want("before the deadline", w.outcome(), "active=2 ready=2 succeeded=0 failed=0")
			w.run(10 * time.Second)
			w.want("while its Pods end", w.outcome(), "active=0 ready=0 succeeded=0 failed=2 FailureTarget")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=0 failed=2 FailureTarget Failed")
			w.expect(podsPath, "")
		},
		"suspended and resumed": func(w *world) {
			w.apply(jobsPath, job(", suspend: true"))
			w.run(time.Minute)
			w.want("suspended", w.outcome(), "active=0 ready=0 succeeded=0 failed=0 Suspended")
			w.patch(jobsPath, "one/work", "{spec: {suspend: false}}")
			w.run(0)
			w.patch(jobsPath, "one/work", "{spec: {suspend: true}}")
			w.run(0)
			w.want("suspended", w.outcome(), "active=0 ready=0 succeeded=0 failed=0 Suspended")
			w.expect(podsPath, "")
			w.patch(jobsPath, "one/work", "{spec: {suspend: false}}")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=3 failed=0 SuccessCriteriaMet Complete")
		},
		"indexed": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "1" {
					return controllers.PodBehavior{ExitAfter: -1}
				}
				return controllers.PodBehavior{}
			}
			w.apply(jobsPath, job(", completionMode: Indexed, completions: 5"))
			w.run(time.Minute)
			w.want("while one runs", w.outcome(), "active=1 ready=1 succeeded=4 failed=0")
			w.want("indexes", into[batchv1.Job](w, jobsPath, "one/work").Status.CompletedIndexes, "0,2-4")
		},
		"limits per index": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				code, _ := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
				return controllers.PodBehavior{ExitCode: int32(code)} // index 0 succeeds, 1 is tried again, 2 is not
			}
			w.apply(jobsPath, job(`, completionMode: Indexed, completions: 3, parallelism: 3, backoffLimit: 9, backoffLimitPerIndex: 2,
				podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [2]}}]}`))
			w.run(5 * time.Second)
			w.want("after the first failures", w.outcome()+" "+*into[batchv1.Job](w, jobsPath, "one/work").Status.FailedIndexes, "active=0 ready=0 succeeded=1 failed=1 2")
			w.run(9 * time.Second)
			w.want("after the delay", w.outcome(), "active=0 ready=0 succeeded=1 failed=2")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=1 failed=4 FailureTarget Failed")
		},
		"failure policy": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ExitCode: 42} }
			w.apply(jobsPath, job(`, podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}`))
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=0 failed=2 FailureTarget Failed")
		},
		"success policy": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "1" {
					return controllers.PodBehavior{ExitAfter: -1}
				}
				return controllers.PodBehavior{}
			}
			w.apply(jobsPath, job(`, completionMode: Indexed, successPolicy: {rules: [{succeededIndexes: "0,2"}]}`))
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=0 ready=0 succeeded=2 failed=0 SuccessCriteriaMet Complete")
		},
		"ttl": func(w *world) {
			w.apply(jobsPath, job(", ttlSecondsAfterFinished: 60"))
			w.run(30 * time.Second)
			w.expect(jobsPath, "work")
			w.run(time.Minute)
			w.expect(jobsPath, "")
			w.expect(podsPath, "")
		},
		"a Pod is deleted": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ExitAfter: -1} }
			w.apply(jobsPath, job(", parallelism: 1"))
			w.run(time.Minute)
			w.delete(podsPath, "one/"+w.podNames()[0], "")
			w.run(time.Minute)
			w.want("outcome", w.outcome(), "active=1 ready=1 succeeded=0 failed=1")
			w.want("number of Pods", fmt.Sprint(len(w.podNames())), "1")
		},
	})
}

// The finalizer of a Job's Pods is removed when the Job does not count them any more.
func TestPodsOfDeletedJobs(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(_ *testing.T, w *world) {
				w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ExitAfter: -1} }
				w.apply(jobsPath, job(""))
				w.run(time.Minute)
				w.delete(jobsPath, "one/work", policy)
				w.run(time.Minute)
				w.expect(jobsPath, "")
				for _, name := range w.podNames() {
					if pod := into[corev1.Pod](w, podsPath, "one/"+name); policy != "Orphan" || len(pod.Finalizers) > 0 {
						t.Errorf("Pod %s remains with finalizers %v", name, pod.Finalizers)
					}
				}
			})
		})
	}
}

// No kubelet ends a Pod without a node.
func TestPodsWithoutNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(_ *testing.T, w *world) {
		w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{Unschedulable: true} }
		w.apply(podsPath, `{metadata: {name: a, finalizers: [example.com/x]}, spec: {containers: [{name: c, image: a}]}}`)
		w.run(time.Minute)
		w.delete(podsPath, "one/a", "")
		w.run(0)
		w.want("phase at once", string(into[corev1.Pod](w, podsPath, "one/a").Status.Phase), "Pending")
		w.run(time.Minute)
		w.want("phase", string(into[corev1.Pod](w, podsPath, "one/a").Status.Phase), "Failed")
	})
}
