package controllers

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// remain reports whether exactly these ConfigMaps exist.
func (s *side) remain(names ...string) func() bool {
	return func() bool {
		got := s.names("configmaps")
		slices.Sort(got)
		return slices.Equal(got, names)
	}
}

func TestDependents(t *testing.T) {
	t.Parallel()
	const finalizer, noFinalizer = "{metadata: {finalizers: [example.org/x]}}", "{metadata: {finalizers: null}}"
	chain := func(s *side) {
		uid := s.create(s.path("configmaps"), owned("a"))
		for _, names := range []string{"ab", "bc", "cd"} {
			uid = s.create(s.path("configmaps"), owned(names[1:], reference("ConfigMap", names[:1], uid)))
		}
	}
	compare(t, "foreground chain", func(s *side) {
		chain(s)
		s.patch(s.path("configmaps", "c"), finalizer)
		s.delete(s.path("configmaps", "a"), "Foreground")
		s.await("the chain waits for a finalizer", s.remain("a", "b", "c"))
		s.patch(s.path("configmaps", "c"), noFinalizer)
		s.await("nothing remains", s.remain())
	})
	compare(t, "foreground chain with an end that waits", func(s *side) {
		chain(s)
		s.patch(s.path("configmaps", "d"), finalizer)
		s.delete(s.path("configmaps", "a"), "Foreground")
		s.await("the chain waits for a finalizer", s.remain("a", "b", "c", "d"))
		s.patch(s.path("configmaps", "d"), noFinalizer)
		s.await("nothing remains", s.remain())
	})
	compare(t, "background chain", func(s *side) {
		chain(s)
		s.patch(s.path("configmaps", "b"), finalizer)
		s.delete(s.path("configmaps", "a"), "Background")
		s.await("the owner with a finalizer remains with its dependents", s.remain("b", "c", "d"))
		s.patch(s.path("configmaps", "b"), noFinalizer)
		s.await("nothing remains", s.remain())
	})
	compare(t, "orphan in a chain", func(s *side) {
		chain(s)
		s.patch(s.path("configmaps", "b"), "{metadata: {finalizers: [orphan]}}")
		s.delete(s.path("configmaps", "a"), "Foreground")
		s.await("a Foreground deletion of the owner ignores the finalizer", s.remain())
	})
	compare(t, "dependents that do not block", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		s.create(s.path("configmaps"), strings.ReplaceAll(owned("free", reference("ConfigMap", "owner", owner)), "blockOwnerDeletion: true", "blockOwnerDeletion: false"))
		s.create(s.path("configmaps"), strings.ReplaceAll(owned("unset", reference("ConfigMap", "owner", owner)), ", blockOwnerDeletion: true", ""))
		s.patch(s.path("configmaps", "free"), finalizer)
		s.delete(s.path("configmaps", "owner"), "Foreground")
		s.await("the owner does not wait", s.remain("free"))
		s.patch(s.path("configmaps", "free"), noFinalizer)
		s.await("nothing remains", s.remain())
	})
	compare(t, "dependent that stops to block", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		s.create(s.path("configmaps"), owned("dependent", reference("ConfigMap", "owner", owner)))
		s.patch(s.path("configmaps", "dependent"), finalizer)
		s.delete(s.path("configmaps", "owner"), "Foreground")
		s.await("the owner waits", s.remain("dependent", "owner"))
		s.patch(s.path("configmaps", "dependent"), "{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: "+owner+"}]}}")
		s.await("the owner is gone", s.remain("dependent"))
	})
	compare(t, "dependent that is released in time", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		s.create(s.path("configmaps"), owned("kept", reference("ConfigMap", "owner", owner)))
		s.create(s.path("configmaps"), owned("blocks", reference("ConfigMap", "owner", owner)))
		s.patch(s.path("configmaps", "blocks"), finalizer)
		s.patch(s.path("configmaps", "kept"), "{metadata: {ownerReferences: null}}")
		s.delete(s.path("configmaps", "owner"), "Foreground")
		s.await("the owner waits", s.remain("blocks", "kept", "owner"))
		lateReference := reference("ConfigMap", "owner", owner)
		s.create(s.path("configmaps"), owned("late", lateReference))
		s.await("a late dependent stays while the owner waits", s.remain("blocks", "kept", "late", "owner"))
		s.patch(s.path("configmaps", "blocks"), noFinalizer)
		s.await("all dependents are gone", s.remain("kept"))
	})
	compare(t, "two owners", func(s *side) {
		a, b := s.create(s.path("configmaps"), owned("a")), s.create(s.path("configmaps"), owned("b"))
		s.create(s.path("configmaps"), owned("dependent", reference("ConfigMap", "a", a), reference("ConfigMap", "b", b)))
		s.patch(s.path("configmaps", "a"), finalizer)
		s.delete(s.path("configmaps", "a"), "Foreground")
		s.await("the reference is removed", func() bool {
			return s.remain("a", "b", "dependent")() && strings.Count(s.state(), "dependent owner") == 1
		})
		s.patch(s.path("configmaps", "a"), noFinalizer)
		s.await("the first owner is gone", s.remain("b", "dependent"))
		s.delete(s.path("configmaps", "b"), "Background")
		s.await("nothing remains", s.remain())
	})
	for _, policy := range []string{"Foreground", "Background", "Orphan"} {
		compare(t, "owners of each other "+policy, func(s *side) {
			a := s.create(s.path("configmaps"), owned("a"))
			b := s.create(s.path("configmaps"), owned("b", reference("ConfigMap", "a", a)))
			s.patch(s.path("configmaps", "a"), "{metadata: {ownerReferences: ["+reference("ConfigMap", "b", b)+"]}}")
			s.delete(s.path("configmaps", "a"), policy)
			s.await("one or none remains", func() bool { return len(s.list("configmaps")) < 2 })
		})
	}
	compare(t, "owner in another namespace", func(s *side) {
		other := s.namespace + "-2"
		s.create("/api/v1/namespaces", "{metadata: {name: "+other+"}}")
		owner := s.create("/api/v1/namespaces/"+other+"/configmaps", owned("owner"))
		s.create(s.path("configmaps"), owned("dependent", reference("ConfigMap", "owner", owner)))
		same := s.create(s.path("configmaps"), owned("same"))
		s.create(s.path("configmaps"), owned("both", reference("ConfigMap", "owner", owner), reference("ConfigMap", "same", same)))
		s.await("the dependent is deleted", s.remain("both", "same"))
	})
	compare(t, "cluster-scoped owner", func(s *side) {
		volume := `{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAME}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /tmp}}}`
		owner := s.create("/api/v1/persistentvolumes", strings.Replace(volume, "NAME", s.namespace, 1))
		s.create(s.path("configmaps"), owned("dependent", reference("PersistentVolume", s.namespace, owner)))
		namespaced := s.create(s.path("configmaps"), owned("owner"))
		s.create("/api/v1/persistentvolumes", strings.Replace(volume, "name: NAME", "name: "+s.namespace+"-2, ownerReferences: ["+reference("ConfigMap", "owner", namespaced)+"]", 1))
		s.await("the dependent exists", s.remain("dependent", "owner"))
		s.delete(s.path("configmaps", "owner"), "Background")
		s.delete("/api/v1/persistentvolumes/"+s.namespace, "Background")
		s.await("the dependent is deleted", s.remain())
		if s.get("/api/v1/persistentvolumes/"+s.namespace+"-2") == nil {
			s.t.Errorf("%s: the cluster-scoped object with a namespaced owner is gone", s.base)
		}
	})
	compare(t, "deployment in a chain", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		s.create(s.path("deployments"), strings.NewReplacer("annotations:", "ownerReferences: ["+reference("ConfigMap", "owner", owner)+"], annotations:",
			"spec: {containers", "spec: {nodeSelector: {no: node}, containers").Replace(deployment("")))
		s.await("3 Pods wait for a node", s.status("deployments", "web", map[string]int{"replicas": 3}))
		s.patch(s.path("pods", s.names("pods")[0]), finalizer)
		s.delete(s.path("configmaps", "owner"), "Foreground")
		s.await("all wait for the Pod", func() bool { return len(s.list("pods")) == 1 && strings.Contains(s.state(), "phase: Failed") })
		s.patch(s.path("pods", s.names("pods")[0]), noFinalizer)
		s.await("nothing remains", func() bool {
			return s.gone("configmaps") && s.gone("deployments") && s.gone("replicasets") && s.gone("pods")
		})
	})
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	path := func(s *side) string { return "/api/v1/namespaces/" + s.namespace }
	compare(t, "namespace with its own finalizers", func(s *side) {
		s.create(s.path("configmaps"), owned("a"))
		s.patch(path(s), "{metadata: {finalizers: [example.org/x]}}")
		s.delete(path(s), "Background")
		s.await("the content is gone", func() bool { return s.gone("configmaps") })
		if code, obj := s.send(http.MethodPost, s.path("configmaps"), "application/json", owned("late")); code != http.StatusForbidden {
			s.t.Errorf("%s: create in a namespace that is being deleted: %d %v", s.base, code, obj["message"])
		}
		s.patch(path(s), "{metadata: {finalizers: null}}")
		s.await("the namespace is gone", func() bool { return s.get(path(s)) == nil })
	})
	compare(t, "namespace with a pod that stays", func(s *side) {
		s.create(s.path("configmaps"), owned("a"))
		s.create(s.path("pods"), strings.Replace(servicePod("a", ""), "spec: {", "spec: {nodeSelector: {no: node}, ", 1))
		s.patch(s.path("pods", "a"), "{metadata: {finalizers: [example.org/x]}}")
		s.delete(path(s), "Background")
		s.await("the Pod waits", s.phase("a", "Failed"))
		s.patch(s.path("pods", "a"), "{metadata: {finalizers: null}}")
		s.await("the namespace is gone", func() bool { return s.get(path(s)) == nil })
	})
	compare(t, "namespace with owners and finalizers", func(s *side) {
		owner := s.create(s.path("configmaps"), owned("owner"))
		s.create(s.path("configmaps"), owned("dependent", reference("ConfigMap", "owner", owner)))
		s.patch(s.path("configmaps", "dependent"), "{metadata: {finalizers: [example.org/x, example.org/y]}}")
		s.create(s.path("services"), `{apiVersion: v1, kind: Service, metadata: {name: web, finalizers: [example.org/y]}, spec: {selector: {app: web}, clusterIP: None}}`)
		s.create(s.path("jobs"), strings.Replace(job, "SPEC", ", nodeSelector: {no: node}", 1))
		s.await("2 Pods wait for a node", func() bool { return number(s.get(s.path("jobs", "work")), "status", "active") == 2 })
		s.delete(path(s), "Background")
		s.await("finalizers remain", func() bool {
			return s.gone("pods") && s.gone("jobs") && s.gone("endpointslices") && strings.Contains(s.state(), "example.org/y in 2 resource instances")
		})
		s.patch(s.path("configmaps", "dependent"), "{metadata: {finalizers: null}}")
		s.patch(s.path("services", "web"), "{metadata: {finalizers: null}}")
		s.await("the namespace is gone", func() bool { return s.get(path(s)) == nil })
	})
}
