package controllers

import (
	"strings"
	"testing"
)

// stuckJob returns a Job whose Pods wait for a node. spec replaces the fields of the Job's spec.
func stuckJob(spec string) string {
	return `{apiVersion: batch/v1, kind: Job, metadata: {name: work}, spec: {` + spec + `, template: {spec: {restartPolicy: Never,
		nodeSelector: {no: node}, terminationGracePeriodSeconds: 1, containers: [{name: c, image: a}]}}}}`
}

// jobStatus reports whether the status of Job work has these numbers.
func (s *side) jobStatus(active, succeeded, failed int) func() bool {
	return func() bool {
		status := s.get(s.path("jobs", "work"))
		return number(status, "status", "active") == active && number(status, "status", "succeeded") == succeeded && number(status, "status", "failed") == failed
	}
}

// waiting returns the names of the Pods that have not ended.
func (s *side) waiting() (names []string) {
	s.t.Helper()
	for _, name := range s.names("pods") {
		if s.phase(name, "Pending")() {
			names = append(names, name)
		}
	}
	return names
}

func (s *side) firstWaiting() string {
	s.t.Helper()
	names := s.waiting()
	if len(names) == 0 {
		s.t.Fatalf("%s: all Pods have ended; state:\n%s", s.base, s.state())
	}
	return names[0]
}

func TestJobSpecs(t *testing.T) {
	t.Parallel()
	compare(t, "job parallelism", func(s *side) {
		s.create(s.path("jobs"), stuckJob("parallelism: 2, completions: 5"))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.patch(s.path("jobs", "work"), "{spec: {parallelism: 4}}")
		s.await("4 Pods are active", s.jobStatus(4, 0, 0))
		s.patch(s.path("jobs", "work"), "{spec: {parallelism: 1}}")
		s.await("1 Pod is active", s.jobStatus(1, 0, 0))
		s.run(s.firstWaiting(), "Succeeded", false, 0)
		s.await("1 Pod has succeeded", s.jobStatus(1, 1, 0))
		s.patch(s.path("jobs", "work"), "{spec: {parallelism: 0}}")
		s.await("no Pod is active", s.jobStatus(0, 1, 0))
	})
	compare(t, "job without completions", func(s *side) {
		s.create(s.path("jobs"), stuckJob("parallelism: 3"))
		s.await("3 Pods are active", s.jobStatus(3, 0, 0))
		s.run(s.firstWaiting(), "Succeeded", false, 0)
		s.await("no Pod is created after the first success", s.jobStatus(2, 1, 0))
		for _, pod := range s.waiting() {
			s.run(pod, "Succeeded", false, 0)
		}
		s.await("the Job is complete", s.finished("Complete"))
	})
	compare(t, "job without retries", func(s *side) {
		s.create(s.path("jobs"), stuckJob("parallelism: 2, completions: 2, backoffLimit: 0"))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.run(s.firstWaiting(), "Failed", false, 1)
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "job with a retry", func(s *side) {
		s.create(s.path("jobs"), stuckJob("backoffLimit: 1"))
		s.await("1 Pod is active", s.jobStatus(1, 0, 0))
		s.run(s.firstWaiting(), "Failed", false, 1)
		s.await("a second Pod is active", s.jobStatus(1, 0, 1))
		s.run(s.firstWaiting(), "Failed", false, 1)
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "job created suspended", func(s *side) {
		s.create(s.path("jobs"), stuckJob("suspend: true, parallelism: 2, completions: 2"))
		s.await("the Job is suspended", s.finished("Suspended"))
		s.patch(s.path("jobs", "work"), "{spec: {suspend: false}}")
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
	})
	for _, policy := range []string{"Foreground", "Background", "Orphan"} {
		compare(t, "running job deleted "+policy, func(s *side) {
			s.create(s.path("jobs"), stuckJob("parallelism: 2, completions: 2"))
			s.await("2 Pods are active", s.jobStatus(2, 0, 0))
			s.delete(s.path("jobs", "work"), policy)
			s.await("the Job is gone", func() bool { return s.gone("jobs") && (policy == "Orphan" || s.gone("pods")) })
		})
	}
	compare(t, "job with a time to live", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", "", 1))
		s.await("the Job is complete", s.finished("Complete"))
		s.patch(s.path("jobs", "work"), "{spec: {ttlSecondsAfterFinished: 1}}")
		s.await("the Job is deleted", func() bool { return s.gone("jobs") && s.gone("pods") })
		s.create(s.path("jobs"), strings.Replace(strings.Replace(job, "SPEC", "", 1), "parallelism: 2", "ttlSecondsAfterFinished: 0, parallelism: 2", 1))
		s.await("the second Job is deleted", func() bool { return s.gone("jobs") && s.gone("pods") })
	})
	compare(t, "job with deleted pods", func(s *side) {
		s.create(s.path("jobs"), stuckJob("parallelism: 2, completions: 2, backoffLimit: 3"))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.delete(s.path("pods", s.firstWaiting()), "Background")
		s.await("the deleted Pod counts as failed", s.jobStatus(2, 0, 1))
	})
	compare(t, "job that replaces failed pods only", func(s *side) {
		s.create(s.path("jobs"), stuckJob("parallelism: 2, completions: 2, podReplacementPolicy: Failed"))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		pod := s.firstWaiting()
		s.patch(s.path("pods", pod), "{metadata: {finalizers: [batch.kubernetes.io/job-tracking, example.org/x]}}")
		s.delete(s.path("pods", pod), "Background")
		s.await("the Pod is replaced when it has failed", func() bool { return s.phase(pod, "Failed")() && s.jobStatus(2, 0, 1)() })
	})
	compare(t, "job of another manager", func(s *side) {
		s.create(s.path("jobs"), stuckJob("managedBy: example.org/manager"))
		s.await("nothing happens", func() bool { return !s.gone("jobs") })
	})
	compare(t, "job with a label that changes", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", ", nodeSelector: {no: node}", 1))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.patch(s.path("pods", s.firstWaiting()), "{metadata: {labels: {job: other}}}")
		s.await("the Pod is released and replaced", func() bool { return s.jobStatus(2, 0, 0)() && len(s.list("pods")) == 3 })
	})
}

func TestPodFailurePolicies(t *testing.T) {
	t.Parallel()
	policy := func(rules string) string {
		return "parallelism: 2, completions: 2, backoffLimit: 1, podFailurePolicy: {rules: [" + rules + "]}"
	}
	compare(t, "job that a policy fails", func(s *side) {
		s.create(s.path("jobs"), stuckJob(policy("{action: Ignore, onExitCodes: {operator: In, values: [3]}}, {action: FailJob, onExitCodes: {containerName: c, operator: NotIn, values: [1, 2]}}")))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.run(s.firstWaiting(), "Failed", false, 3)
		s.await("a failure is ignored", s.jobStatus(2, 0, 0))
		s.run(s.firstWaiting(), "Failed", false, 1)
		s.await("a failure counts", s.jobStatus(2, 0, 1))
		s.run(s.firstWaiting(), "Failed", false, 42)
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "job with a policy of conditions", func(s *side) {
		s.create(s.path("jobs"), stuckJob(policy(`{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}, {action: Count, onExitCodes: {operator: In, values: [1]}}`)))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.patch(s.path("pods", s.firstWaiting(), "status"), `{status: {phase: Failed, conditions: [{type: DisruptionTarget, status: "True"}, {type: PodScheduled, status: "False"}]}}`)
		s.await("a disruption is ignored", s.jobStatus(2, 0, 0))
		s.run(s.firstWaiting(), "Failed", false, 1)
		s.await("a failure counts", s.jobStatus(2, 0, 1))
	})
}

func TestIndexedJobs(t *testing.T) {
	t.Parallel()
	compare(t, "indexed job", func(s *side) {
		s.create(s.path("jobs"), stuckJob("completionMode: Indexed, parallelism: 3, completions: 4"))
		s.await("3 Pods are active", s.jobStatus(3, 0, 0))
		s.run(s.podOf("1"), "Succeeded", false, 0)
		s.await("index 1 has succeeded", s.jobStatus(3, 1, 0))
		s.run(s.podOf("0"), "Failed", false, 1)
		s.await("index 0 is tried again", s.jobStatus(3, 1, 1))
		for _, index := range []string{"0", "2", "3"} {
			s.run(s.podOf(index), "Succeeded", false, 0)
		}
		s.await("the Job is complete", s.finished("Complete"))
	})
	compare(t, "indexed job that changes its size", func(s *side) {
		s.create(s.path("jobs"), stuckJob("completionMode: Indexed, parallelism: 2, completions: 2"))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.patch(s.path("jobs", "work"), "{spec: {parallelism: 4, completions: 4}}")
		s.await("4 Pods are active", s.jobStatus(4, 0, 0))
		s.run(s.podOf("3"), "Succeeded", false, 0)
		s.await("index 3 has succeeded", s.jobStatus(3, 1, 0))
		s.patch(s.path("jobs", "work"), "{spec: {parallelism: 2, completions: 2}}")
		s.await("indexes 0 and 1 remain", func() bool { return s.jobStatus(2, 0, 0)() && s.podOf("0") != "" && s.podOf("1") != "" })
		s.run(s.podOf("0"), "Succeeded", false, 0)
		s.run(s.podOf("1"), "Succeeded", false, 0)
		s.await("the Job is complete", s.finished("Complete"))
	})
	compare(t, "indexed job with limits per index", func(s *side) {
		s.create(s.path("jobs"), stuckJob("completionMode: Indexed, parallelism: 3, completions: 3, backoffLimitPerIndex: 1"))
		s.await("3 Pods are active", s.jobStatus(3, 0, 0))
		s.run(s.podOf("1"), "Failed", false, 1)
		s.await("index 1 is tried again", func() bool { return s.jobStatus(3, 0, 1)() && len(s.list("pods")) == 4 })
		s.run(s.podOf("1"), "Failed", false, 1)
		s.await("index 1 has failed", s.jobStatus(2, 0, 2))
		s.run(s.podOf("0"), "Succeeded", false, 0)
		s.run(s.podOf("2"), "Succeeded", false, 0)
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "indexed job with too many failed indexes", func(s *side) {
		s.create(s.path("jobs"), stuckJob("completionMode: Indexed, parallelism: 4, completions: 4, backoffLimitPerIndex: 0, maxFailedIndexes: 1"))
		s.await("4 Pods are active", s.jobStatus(4, 0, 0))
		s.run(s.podOf("1"), "Failed", false, 1)
		s.await("index 1 has failed", s.jobStatus(3, 0, 1))
		s.run(s.podOf("2"), "Failed", false, 1)
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "indexed job with a policy that fails an index", func(s *side) {
		s.create(s.path("jobs"), stuckJob(`completionMode: Indexed, parallelism: 2, completions: 2, backoffLimitPerIndex: 5, podFailurePolicy: {rules: [
			{action: FailIndex, onExitCodes: {operator: In, values: [9]}}, {action: Ignore, onExitCodes: {operator: In, values: [8]}}]}`))
		s.await("2 Pods are active", s.jobStatus(2, 0, 0))
		s.run(s.podOf("0"), "Failed", false, 8)
		s.await("an ignored failure is tried again", func() bool { return s.jobStatus(2, 0, 0)() && len(s.list("pods")) == 3 })
		s.run(s.podOf("1"), "Failed", false, 9)
		s.await("index 1 has failed", s.jobStatus(1, 0, 1))
	})
	compare(t, "indexed job with a success policy", func(s *side) {
		s.create(s.path("jobs"), stuckJob(`completionMode: Indexed, parallelism: 3, completions: 3, successPolicy: {rules: [{succeededIndexes: "0-1", succeededCount: 2}, {succeededIndexes: "2"}]}`))
		s.await("3 Pods are active", s.jobStatus(3, 0, 0))
		s.run(s.podOf("0"), "Succeeded", false, 0)
		s.await("index 0 does not suffice", s.jobStatus(2, 1, 0))
		s.run(s.podOf("2"), "Succeeded", false, 0)
		s.await("the Job is complete", s.finished("Complete"))
	})
}
