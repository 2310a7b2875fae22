package readiness

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Of returns the state of any object: typed or unstructured, of a built-in or a custom kind. It is a Check.
//
// The first matching step decides:
//
//  1. The object is being deleted: Terminating.
//  2. The status describes an earlier generation (status.observedGeneration): InProgress. So are
//     Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers and
//     PodDisruptionBudgets without an observedGeneration.
//  3. Condition Reconciling is True: InProgress. Otherwise, condition Stalled is True: Failed.
//  4. The kind has a rule: see State.
//  5. The object has a condition Ready: Current if it is True, otherwise InProgress.
//
// All other objects are Current, such as a ConfigMap. So is a custom resource without a status, because many
// kinds never have one. For a kind that reports condition Ready use check Ready, for which a missing condition
// is InProgress.
//
// A condition with another observedGeneration than the object's generation does not count in step 3, and is
// not True in step 5 (kstatus ignores it). Generations are not compared if the object has none.
//
// A *metav1.PartialObjectMetadata has no status: it is Terminating if it is being deleted, otherwise
// InProgress.
func Of(obj kube.Object) State {
	return evaluate(obj, generalRule)
}

// generalRule implements steps 2 to 5 of Of.
func generalRule(o object) State {
	rule, strict := ruleOf(o.kind)
	if state := observedState(o, strict); !state.Ready() {
		return state
	}
	if c, found := o.hasCondition("Reconciling", metav1.ConditionTrue); found {
		return inProgress("the controller is reconciling it%s", c.describe())
	}
	if c, found := o.hasCondition("Stalled", metav1.ConditionTrue); found {
		return failed("stalled%s", c.describe())
	}
	return rule(o)
}

// rule returns the state of an object that is not being deleted.
type rule func(o object) State

// API groups outside of k8s.io/api with kinds that have rules.
const (
	groupCRD        = "apiextensions.k8s.io"
	groupAPIService = "apiregistration.k8s.io"
)

// ruleOf returns the rule for a kind. strict is true if the kind's controller always sets
// status.observedGeneration: then an object without it has not been processed yet.
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

// anyKind is the rule for kinds without a rule of their own.
func anyKind(o object) State {
	c, found := o.condition("Ready")
	if !found {
		return current()
	}
	return o.conditionState("Ready", c, metav1.ConditionTrue)
}

// conditionState returns Current if c, o's condition of this type, has this status and is not stale.
func (o object) conditionState(conditionType string, c condition, status metav1.ConditionStatus) State {
	switch {
	case c.isStale(o):
		return inProgress("condition %s is about generation %d, and the object is at generation %d", conditionType,
			c.observedGeneration, o.generation())
	case c.status != status:
		return inProgress("condition %s is %s%s", conditionType, c.status, c.describe())
	}
	return current()
}

// observedState returns Current if the status describes the object's current generation.
func observedState(o object, strict bool) State {
	generation := o.generation()
	observed, found := o.number("status", "observedGeneration")
	if generation == 0 || observed == generation || !found && !strict {
		return current()
	}
	if observed == 0 {
		return inProgress("the controller has not processed it yet")
	}
	return inProgress("the status is about generation %d, and the object is at generation %d", observed, generation)
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
	if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
		state.Message += fmt.Sprintf(", held by finalizers %q", finalizers)
	}
	return state
}

// unreadable returns the state of an object without readable content; see newObject for problem.
func unreadable(problem string) State {
	if problem != "" {
		return failed("%s", problem)
	}
	return inProgress("the status is unknown, because only the metadata was read: read the Go type or unstructured")
}
