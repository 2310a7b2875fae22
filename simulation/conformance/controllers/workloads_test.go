package controllers

import (
	"strings"
	"testing"
)

const template = `{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "registry.invalid/a:1"}]}}`

// deployment returns a Deployment with 3 Pods. spec is added to its spec.
func deployment(spec string) string {
	return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {example.org/note: copied}}, spec: {replicas: 3,
		selector: {matchLabels: {app: web}}, template: ` + template + spec + `}}`
}

// image returns a patch that changes the image.
func image(version string) string {
	return `{spec: {template: ` + strings.Replace(template, "a:1", "a:"+version, 1) + `}}`
}

// available reports whether Deployment web has n Pods, which are of the latest revision and available.
func (s *side) available(n int) func() bool {
	return func() bool {
		d := s.get(s.path("deployments", "web"))
		return number(d, "status", "observedGeneration") == number(d, "metadata", "generation") && number(d, "status", "replicas") == n &&
			number(d, "status", "updatedReplicas") == n && number(d, "status", "availableReplicas") == n && len(s.list("pods")) == n
	}
}

// gone reports whether a resource has no object.
func (s *side) gone(resource string) bool { return len(s.list(resource)) == 0 }

func TestDeployments(t *testing.T) {
	t.Parallel()
	compare(t, "create and scale", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 5}}")
		s.await("5 Pods are available", s.available(5))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 1}}")
		s.await("1 Pod is available", s.available(1))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 0}}")
		s.await("there is no Pod", s.available(0))
	})
	compare(t, "update", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), image("2"))
		s.await("3 new Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), image("1"))
		s.await("3 Pods of the first revision are available", s.available(3))
		s.patch(s.path("deployments", "web"), `{spec: {revisionHistoryLimit: 1}}`)
		s.patch(s.path("deployments", "web"), image("3"))
		s.await("an old ReplicaSet is deleted", func() bool { return s.available(3)() && len(s.list("replicasets")) == 2 })
	})
	compare(t, "recreate", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{spec: {strategy: {type: Recreate, rollingUpdate: null}}}")
		s.patch(s.path("deployments", "web"), image("2"))
		s.await("3 new Pods are available", s.available(3))
	})
	compare(t, "pause", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{spec: {paused: true}}")
		s.patch(s.path("deployments", "web"), image("2"))
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 4}}")
		s.await("4 old Pods are available", func() bool { return number(s.get(s.path("deployments", "web")), "status", "availableReplicas") == 4 })
		s.patch(s.path("deployments", "web"), "{spec: {paused: false}}")
		s.await("4 new Pods are available", s.available(4))
	})
	compare(t, "update that fails", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("deployments", "web"), "{spec: {progressDeadlineSeconds: 5, strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 1}}}}")
		s.patch(s.path("deployments", "web"), `{spec: {template: {spec: {nodeSelector: {no: node}}}}}`)
		s.await("the deadline is exceeded", func() bool {
			return strings.Contains(s.state(), "ProgressDeadlineExceeded")
		})
		s.patch(s.path("deployments", "web"), "{spec: {replicas: 6}}")
		s.await("all ReplicaSets are scaled", func() bool {
			return number(s.get(s.path("deployments", "web")), "status", "replicas") == 8 && strings.Contains(s.state(), "ProgressDeadlineExceeded")
		})
	})
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Foreground", "Background"} {
		compare(t, "delete in the "+policy, func(s *side) {
			s.create(s.path("deployments"), deployment(""))
			s.await("3 Pods are available", s.available(3))
			s.delete(s.path("deployments", "web"), policy)
			s.await("nothing remains", func() bool { return s.gone("deployments") && s.gone("replicasets") && s.gone("pods") })
		})
	}
	compare(t, "foreground with a finalizer", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		pod := s.list("replicasets")[0]["metadata"].(map[string]any)["name"].(string)
		s.patch(s.path("replicasets", pod), "{metadata: {finalizers: [example.org/x]}}")
		s.delete(s.path("deployments", "web"), "Foreground")
		s.await("the Deployment waits", func() bool { return s.gone("pods") && !s.gone("deployments") })
		s.patch(s.path("replicasets", pod), "{metadata: {finalizers: null}}")
		s.await("nothing remains", func() bool { return s.gone("deployments") && s.gone("replicasets") })
	})
	compare(t, "orphan and adopt", func(s *side) {
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.delete(s.path("deployments", "web"), "Orphan")
		s.await("the ReplicaSet remains", func() bool { return s.gone("deployments") })
		s.create(s.path("deployments"), deployment(""))
		s.await("the ReplicaSet is adopted", s.available(3))
	})
}

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, ownerReferences: [REFERENCES]}}`

func owned(name string, references ...string) string {
	return strings.NewReplacer("NAME", name, "REFERENCES", strings.Join(references, ", ")).Replace(configMap)
}

func reference(kind, name, uid string) string {
	return `{apiVersion: v1, kind: ` + kind + `, name: ` + name + `, uid: ` + uid + `, blockOwnerDeletion: true}`
}

func TestOwners(t *testing.T) {
	t.Parallel()
	const absent = "7d3f0b5e-0000-4000-8000-000000000000"
	compare(t, "absent owners", func(s *side) {
		cms := s.path("configmaps")
		owner := s.create(cms, owned("owner"))
		s.create(cms, owned("absent", reference("ConfigMap", "none", absent)))
		s.create(cms, owned("other-uid", reference("ConfigMap", "owner", absent)))
		s.create(cms, owned("other-kind", reference("Secret", "owner", owner)))
		s.create(cms, owned("other-name", reference("ConfigMap", "none", owner)))
		s.create(cms, owned("one-of-two", reference("ConfigMap", "owner", owner), reference("ConfigMap", "none", absent)))
		s.create(cms, owned("unserved", `{apiVersion: example.org/v1, kind: Widget, name: none, uid: `+absent+`}`))
		s.create(cms, owned("cluster-scoped", reference("Namespace", "default-not", absent)))
		s.await("objects without an owner are deleted", func() bool {
			remaining := s.list("configmaps")
			return len(remaining) == 3
		})
		s.delete(s.path("configmaps", "owner"), "Foreground")
		s.await("the owner and its dependents are deleted", func() bool { return len(s.list("configmaps")) == 1 })
	})
	compare(t, "namespace", func(s *side) {
		s.create(s.path("configmaps"), owned("a"))
		s.create(s.path("deployments"), deployment(""))
		s.await("3 Pods are available", s.available(3))
		s.patch(s.path("configmaps", "a"), "{metadata: {finalizers: [example.org/x]}}")
		namespace := "/api/v1/namespaces/" + s.namespace
		s.delete(namespace, "Background")
		s.await("the namespace waits for the finalizer", func() bool {
			return s.gone("pods") && s.gone("deployments") && strings.Contains(s.state(), "SomeFinalizersRemain")
		})
		s.patch(s.path("configmaps", "a"), "{metadata: {finalizers: null}}")
		s.await("the namespace is gone", func() bool { return s.get(namespace) == nil })
	})
}

const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: work}, spec: {parallelism: 2, completions: 3, backoffLimit: 1, manualSelector: true,
	selector: {matchLabels: {job: work}}, template: {metadata: {labels: {job: work}}, spec: {restartPolicy: Never,
	containers: [{name: c, image: a}]SPEC}}}}`

// finished reports whether Job work has a condition.
func (s *side) finished(condition string) func() bool {
	return func() bool { return strings.Contains(s.state(), "type: "+condition) }
}

func TestJobs(t *testing.T) {
	t.Parallel()
	compare(t, "job that succeeds", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", "", 1))
		s.await("the Job is complete", s.finished("Complete"))
		s.delete(s.path("jobs", "work"), "Background")
		s.await("the Pods are deleted", func() bool { return s.gone("jobs") && s.gone("pods") })
	})
	compare(t, "job that fails", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", ", nodeSelector: {no: node}", 1))
		s.await("2 Pods wait for a node", func() bool { return number(s.get(s.path("jobs", "work")), "status", "active") == 2 })
		for _, pod := range s.list("pods") { // in place of a kubelet
			s.patch(s.path("pods", pod["metadata"].(map[string]any)["name"].(string), "status"), "{status: {phase: Failed}}")
		}
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "job with a deadline", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", ", nodeSelector: {no: node}", 1))
		s.await("2 Pods wait for a node", func() bool { return number(s.get(s.path("jobs", "work")), "status", "active") == 2 })
		s.patch(s.path("jobs", "work"), "{spec: {activeDeadlineSeconds: 1}}")
		s.await("the Job has failed", s.finished("Failed"))
	})
	compare(t, "suspended job", func(s *side) {
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", ", nodeSelector: {no: node}", 1))
		s.await("2 Pods wait for a node", func() bool { return number(s.get(s.path("jobs", "work")), "status", "active") == 2 })
		s.patch(s.path("jobs", "work"), "{spec: {suspend: true}}")
		s.await("there is no Pod", func() bool { return s.gone("pods") })
		s.patch(s.path("jobs", "work"), "{spec: {suspend: false}}")
		s.await("2 Pods wait for a node again", func() bool { return number(s.get(s.path("jobs", "work")), "status", "active") == 2 })
	})
}
