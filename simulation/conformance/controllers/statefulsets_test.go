package controllers

import (
	"fmt"
	"strings"
	"testing"
)

// statefulSet returns a StatefulSet with 3 Pods. spec is added to its spec.
func statefulSet(spec string) string {
	return `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, annotations: {example.org/note: copied}}, spec: {replicas: 3,
		serviceName: peers, selector: {matchLabels: {app: web}}, template: ` + template + spec + `}}`
}

// stateful reports whether StatefulSet web has n Pods, which are available, and updated of which are of the update revision.
func (s *side) stateful(n, updated int) func() bool {
	return func() bool {
		set := s.get(s.path("statefulsets", "web"))
		return number(set, "status", "observedGeneration") == number(set, "metadata", "generation") && number(set, "status", "replicas") == n &&
			number(set, "status", "updatedReplicas") == updated && number(set, "status", "availableReplicas") == n && len(s.list("pods")) == n
	}
}

func TestStatefulSets(t *testing.T) {
	t.Parallel()
	compare(t, "set create and scale", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(", minReadySeconds: 1"))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 4}}")
		s.await("4 Pods are available", s.stateful(4, 4))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 2, ordinals: {start: 1}}}")
		s.await("2 Pods with other ordinals are available", s.stateful(2, 2))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 0}}")
		s.await("there is no Pod", s.stateful(0, 0))
	})
	compare(t, "set update", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(", updateStrategy: {rollingUpdate: {partition: 2}}"))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("1 Pod is updated", s.stateful(3, 1))
		s.delete(s.path("pods", "web-0"), "Background")
		s.await("a Pod before the partition is of the old revision", s.stateful(3, 1))
		s.patch(s.path("statefulsets", "web"), "{spec: {updateStrategy: {rollingUpdate: {partition: 0}}}}")
		s.await("3 Pods are updated", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), image("1"))
		s.await("3 Pods of the first revision are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), "{spec: {revisionHistoryLimit: 0}}")
		s.patch(s.path("statefulsets", "web"), image("3"))
		s.await("the old revisions are deleted", func() bool { return s.stateful(3, 3)() && len(s.list("controllerrevisions")) == 1 })
	})
	compare(t, "set on delete", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(", updateStrategy: {type: OnDelete}"))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("no Pod is updated", s.stateful(3, 0))
		s.delete(s.path("pods", "web-1"), "Background")
		s.await("1 Pod is updated", s.stateful(3, 1))
		s.patch(s.path("pods", "web-2", "status"), "{status: {phase: Failed}}")
		s.await("a failed Pod is replaced", s.stateful(3, 2))
	})
	compare(t, "set parallel", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(", podManagementPolicy: Parallel, ordinals: {start: 5}"))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), image("2"))
		s.await("3 Pods are updated", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("1 Pod is available", s.stateful(1, 1))
	})
	compare(t, "set update that fails", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(""))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("statefulsets", "web"), `{spec: {template: {spec: {nodeSelector: {no: node}}}}}`)
		s.await("the first new Pod waits for a node", func() bool {
			set := s.get(s.path("statefulsets", "web"))
			return number(set, "status", "replicas") == 3 && number(set, "status", "updatedReplicas") == 1 && number(set, "status", "readyReplicas") == 2
		})
		s.patch(s.path("statefulsets", "web"), `{spec: {template: {spec: {nodeSelector: null}}}}`)
		s.await("the Pod blocks the rollback", func() bool {
			return number(s.get(s.path("statefulsets", "web")), "status", "observedGeneration") == 3
		})
		s.delete(s.path("pods", "web-2"), "Background")
		s.await("3 Pods of the first revision are available", s.stateful(3, 3))
	})
	compare(t, "set with a released Pod", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(""))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.patch(s.path("pods", "web-1"), "{metadata: {labels: {app: other}}}")
		s.await("2 Pods remain", func() bool { return number(s.get(s.path("statefulsets", "web")), "status", "replicas") == 2 })
		s.patch(s.path("pods", "web-1"), "{metadata: {labels: {app: web}}}")
		s.await("the Pod is adopted", s.stateful(3, 3))
	})
}

func TestDeletionOfStatefulSets(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Foreground", "Background"} {
		compare(t, "delete a set in the "+policy, func(s *side) {
			s.create(s.path("statefulsets"), statefulSet(""))
			s.await("3 Pods are available", s.stateful(3, 3))
			s.delete(s.path("statefulsets", "web"), policy)
			s.await("nothing remains", func() bool { return s.gone("statefulsets") && s.gone("controllerrevisions") && s.gone("pods") })
		})
	}
	compare(t, "orphan and adopt a set", func(s *side) {
		s.create(s.path("statefulsets"), statefulSet(""))
		s.await("3 Pods are available", s.stateful(3, 3))
		s.delete(s.path("statefulsets", "web"), "Orphan")
		s.await("the Pods remain", func() bool { return s.gone("statefulsets") })
		s.create(s.path("statefulsets"), statefulSet(""))
		s.await("the Pods are adopted", s.stateful(3, 3))
	})
}

func TestClaims(t *testing.T) {
	t.Parallel()
	for _, policy := range []struct{ whenDeleted, whenScaled string }{{"Retain", "Retain"}, {"Retain", "Delete"}, {"Delete", "Retain"}, {"Delete", "Delete"}} {
		compare(t, fmt.Sprintf("claims %s %s", policy.whenDeleted, policy.whenScaled), func(s *side) {
			for i := range 3 { // the models bind claims without volumes
				s.create("/api/v1/persistentvolumes", fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s-%d}, spec: {storageClassName: %s,
					accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /tmp}, persistentVolumeReclaimPolicy: Retain}}`, s.namespace, i, s.namespace))
			}
			s.create(s.path("statefulsets"), statefulSet(`, persistentVolumeClaimRetentionPolicy: {whenDeleted: `+policy.whenDeleted+`, whenScaled: `+policy.whenScaled+`},
				volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: `+s.namespace+`, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]`))
			s.await("3 Pods are available", s.stateful(3, 3))
			s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
			remaining := map[string]int{"Retain": 3, "Delete": 1}[policy.whenScaled]
			s.await("1 Pod is available", func() bool { return s.stateful(1, 1)() && len(s.list("persistentvolumeclaims")) == remaining })
			s.delete(s.path("statefulsets", "web"), "Background")
			if policy.whenDeleted == "Delete" {
				remaining = 0
			}
			s.await("the Pods are deleted", func() bool { return s.gone("pods") && len(s.list("persistentvolumeclaims")) == remaining })
		})
	}
	compare(t, "set with a claim that exists", func(s *side) {
		s.create(s.path("persistentvolumeclaims"), strings.ReplaceAll(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-web-0}, spec: {
			storageClassName: NS, volumeName: NS-0, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, "NS", s.namespace))
		s.create("/api/v1/persistentvolumes", fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s-0}, spec: {storageClassName: %s,
			accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /tmp}, persistentVolumeReclaimPolicy: Retain}}`, s.namespace, s.namespace))
		s.create(s.path("statefulsets"), statefulSet(`, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete},
			volumeClaimTemplates: [{metadata: {name: data, labels: {a: b}}, spec: {storageClassName: `+s.namespace+`, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]`))
		s.patch(s.path("statefulsets", "web"), "{spec: {replicas: 1}}")
		s.await("the Pod uses the claim", s.stateful(1, 1))
	})
}
