package readiness

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Of returns the state of any object: typed, unstructured, of a built-in kind or of a custom
// one. It is a Check.
//
// It asks, in this order:
//
//  1. Is the object being deleted? Then it is Terminating.
//  2. Is what the status says about an earlier generation (status.observedGeneration)? Then it
//     is InProgress. Deployments, StatefulSets, DaemonSets, ReplicaSets,
//     ReplicationControllers and PodDisruptionBudgets that nobody has looked at yet are InProgress
//     too.
//  3. Does a condition Reconciling or Stalled say True? Then it is InProgress, or Failed. Where
//     both do, it is InProgress.
//  4. Is there a rule for the kind? See below.
//  5. Is there a condition Ready? Current when it is True, otherwise InProgress.
//
// What passes all that is Current, as a ConfigMap is from the beginning. So is a custom resource
// that has no status yet, because many kinds never have one: for a kind that reports Ready, wait
// for Ready, which does not take silence for an answer.
//
// The rules:
//   - Deployment, ReplicaSet, ReplicationController: all replicas there, updated and available,
//     and no others; a Deployment past its progress deadline is Failed. A paused one is what its
//     replicas are (kstatus: InProgress until it goes on).
//   - StatefulSet: the same; with a partition, the replicas above it updated; with the update
//     strategy OnDelete, updates do not count (kstatus takes such a set for Current whatever its
//     replicas are).
//   - DaemonSet: a Pod on each node that is to have one, available and, unless OnDelete (which
//     kstatus does not look at), updated.
//   - Pod: Ready, or ended well. Failed when it has ended badly (kstatus: Current), or a container,
//     also one that others wait for, crashes again and again. One that no node takes is InProgress,
//     for a node may come (kstatus: Failed after 15 s).
//   - Job: complete. Running and suspended Jobs are InProgress: what its spec asks for is the
//     work done (kstatus: Current from its start, and when suspended). Failed when it has failed.
//   - PersistentVolumeClaim: bound; Failed when its volume is lost (kstatus: InProgress). A claim
//     whose storage class waits for the first consumer stays InProgress until a Pod uses it: wait
//     for such a claim only together with its Pod.
//   - Service of type LoadBalancer: it has an address from outside (kstatus: one in the cluster).
//     Other Services are Current.
//   - PodDisruptionBudget: its controller has looked at it. Whether the Pods are healthy, they say.
//   - CustomResourceDefinition: Established; Failed when its names are not accepted.
//   - APIService: Available (kstatus: Current at once).
//   - Namespace: not Terminating.
//   - CronJob and all others: steps 1 to 3 and 5.
//
// A condition whose observedGeneration is not the object's generation does not count in step 3, and
// is not True in step 5 (kstatus does not look at it). Of objects without a generation no such
// number is compared.
//
// A *metav1.PartialObjectMetadata has no status: it is Terminating, or InProgress with a message
// that says so.
func Of(obj kube.Object) State {
	return look(obj, general)
}

// general is the rule for all objects.
func general(o object) State {
	rule, strict := ruleOf(o.kind)
	if state := observed(o, strict); !state.Ready() {
		return state
	}
	if c, found := o.is("Reconciling", metav1.ConditionTrue); found {
		return inProgress("it is being reconciled%s", c.why())
	}
	if c, found := o.is("Stalled", metav1.ConditionTrue); found {
		return failed("it is stalled%s", c.why())
	}
	return rule(o)
}

// rule tells the state of an object that is not being deleted.
type rule func(o object) State

// The groups of kinds with rules.
const (
	groupCRD        = "apiextensions.k8s.io"
	groupAPIService = "apiregistration.k8s.io"
)

// ruleOf returns the rule for a kind. strict says that the kind's controller reports
// observedGeneration from its first look at an object on, so that zero means: nobody has looked.
func ruleOf(kind schema.GroupKind) (r rule, strict bool) {
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return deployment, true
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return statefulSet, true
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return daemonSet, true
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Kind: "ReplicationController"}:
		return replicaSet, true
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return podDisruptionBudget, false
	case schema.GroupKind{Kind: "Pod"}:
		return pod, false
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return job, false
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return claim, false
	case schema.GroupKind{Kind: "Service"}:
		return service, false
	case schema.GroupKind{Kind: "Namespace"}:
		return namespace, false
	case schema.GroupKind{Group: groupCRD, Kind: "CustomResourceDefinition"}:
		return definition, false
	case schema.GroupKind{Group: groupAPIService, Kind: "APIService"}:
		return apiService, false
	}
	return anyKind, false
}

// anyKind is the rule for kinds that have none of their own.
func anyKind(o object) State {
	c, found := o.condition("Ready")
	if !found {
		return current()
	}
	return o.demand("Ready", c, metav1.ConditionTrue)
}

// demand is Current when c, o's condition of a type, has a status.
func (o object) demand(conditionType string, c condition, status metav1.ConditionStatus) State {
	switch {
	case c.isStale(o):
		return inProgress("condition %s is about generation %d, and the object is at generation %d", conditionType, c.observed, o.generation())
	case c.status != status:
		return inProgress("condition %s is %s%s", conditionType, c.status, c.why())
	}
	return current()
}

// observed is Current when the status is about the object's present generation.
func observed(o object, strict bool) State {
	generation := o.generation()
	seen, found := o.number("status", "observedGeneration")
	if generation == 0 || seen == generation || !found && !strict {
		return current()
	}
	if seen == 0 {
		return inProgress("nobody has reported on it yet")
	}
	return inProgress("the status is about generation %d, and the object is at generation %d", seen, generation)
}

func current() State { return State{Status: Current} }

func inProgress(format string, args ...any) State {
	return State{Status: InProgress, Message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) State {
	return State{Status: Failed, Message: fmt.Sprintf(format, args...)}
}

func terminating(obj metav1.Object) State {
	state := State{Status: Terminating, Message: "it is being deleted"}
	if held := obj.GetFinalizers(); len(held) > 0 {
		state.Message += fmt.Sprintf(", held by finalizers %q", held)
	}
	return state
}

// unread is the state of what cannot be looked into.
func unread(why string) State {
	if why != "" {
		return failed("%s", why)
	}
	return inProgress("its status is not known: only its metadata was read; read it as its Go type, or unstructured")
}
