package readiness

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Exists is a Check: whatever is there is Current, also when it is being deleted.
func Exists(obj kube.Object) State {
	if kube.IsNil(obj) {
		return inProgress("there is no object")
	}
	return current()
}

// Condition returns a Check: Current when the object's status has the condition of a type, with
// a status; otherwise InProgress, or Terminating when the object is being deleted.
//
// A condition that is about another generation of the object does not count. It says which by
// its own observedGeneration; where it has none, status.observedGeneration tells, if there is
// one. An object without the condition is InProgress, whatever status is asked for.
func Condition(conditionType string, status metav1.ConditionStatus) Check {
	return func(obj kube.Object) State {
		return look(obj, func(o object) State {
			c, found := o.condition(conditionType)
			if found && c.observed == 0 {
				if state := observed(o, false); !state.Ready() {
					return state
				}
			}
			return o.reported(conditionType, status)
		})
	}
}

// Ready is a Check for objects whose controller says when they are ready: Of, and the condition
// Ready has to be True. Of alone takes an object without a status for Current, whose controller has
// just not seen it yet. An object that is Stalled is Failed, which ends a client.WaitFor at once.
func Ready(obj kube.Object) State {
	return look(obj, func(o object) State {
		if state := general(o); !state.Ready() {
			return state // which may be about the condition already: All would say it twice
		}
		return o.reported("Ready", metav1.ConditionTrue) // of which the status is, as general has found
	})
}

// When returns a Check of one's own for objects of type T: Current while holds returns true,
// otherwise InProgress, with what as the message, which says what is missing: "the database has
// no address". An object of another type than T is Failed. Deletion does not matter to it.
//
// holds must not change the object, and must be safe for concurrent use.
func When[T kube.Object](what string, holds func(obj T) bool) Check {
	if holds == nil {
		return func(kube.Object) State { return failed("the function of the check (%q) is nil", what) }
	}
	return func(obj kube.Object) State {
		if kube.IsNil(obj) {
			return inProgress("there is no object")
		}
		typed, ok := obj.(T)
		switch {
		case !ok:
			return failed("the check is for a %s, and the object is a %T", reflect.TypeFor[T](), obj)
		case !holds(typed):
			return inProgress("%s", what)
		}
		return current()
	}
}

// RolledOut is a Check for Deployments, StatefulSets, DaemonSets, ReplicaSets and
// ReplicationControllers: Current when every replica is available and, as far as the update
// strategy brings them there, of the present template. It is Of, but that objects of other kinds
// are Failed.
func RolledOut(obj kube.Object) State {
	return ofKinds(obj, "be rolled out", general,
		schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "StatefulSet"},
		schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"},
		schema.GroupKind{Kind: "ReplicationController"})
}

// JobDone is a Check for Jobs: Current when the Job is complete, Failed when it has failed. It is
// Of, but that objects of other kinds are Failed.
func JobDone(obj kube.Object) State {
	return ofKinds(obj, "be done", general, schema.GroupKind{Group: "batch", Kind: "Job"})
}

// PodReady is a Check for Pods: Current when the Pod is Ready. Unlike Of it takes a Pod that has
// ended, well or not, for Failed: it will not be ready. Objects of other kinds are Failed.
func PodReady(obj kube.Object) State {
	unlessEnded := func(o object) State {
		state := general(o)
		if state.Ready() && o.text("status", "phase") == "Succeeded" {
			return failed("it has ended")
		}
		return state
	}
	return ofKinds(obj, "be ready as Pods are", unlessEnded, schema.GroupKind{Kind: "Pod"})
}

// Established is a Check for CustomResourceDefinitions: Current when the API server serves the
// kind, Failed when it does not accept the names. It is Of, but that objects of other kinds are
// Failed. (Discovery may show the kind a moment later.)
func Established(obj kube.Object) State {
	return ofKinds(obj, "be established", general, schema.GroupKind{Group: groupCRD, Kind: "CustomResourceDefinition"})
}

// ofKinds is what r makes of objects of some kinds. Of all others, nothing can be said.
func ofKinds(obj kube.Object, what string, r rule, kinds ...schema.GroupKind) State {
	if kube.IsNil(obj) {
		return inProgress("there is no object")
	}
	if kind := kindOf(obj); !slices.Contains(kinds, kind) {
		name := kind.Kind
		if name == "" {
			name = fmt.Sprintf("%T", obj)
		}
		return failed("a %s cannot %s", name, what)
	}
	return look(obj, r)
}

// look is what r makes of an object that is not being deleted and can be read.
func look(obj kube.Object, r rule) State {
	if kube.IsNil(obj) {
		return inProgress("there is no object")
	}
	if obj.GetDeletionTimestamp() != nil {
		return terminating(obj)
	}
	o, why, ok := read(obj)
	if !ok {
		return unread(why)
	}
	return r(o)
}

// All returns a Check: Current when all of checks are. Otherwise the state is the worst of
// theirs (Failed, then Terminating, then InProgress), and the message has what each of them
// misses. All of no checks is Current.
func All(checks ...Check) Check {
	if problem := nilCheck(checks); problem != nil {
		return problem
	}
	checks = slices.Clone(checks)
	return func(obj kube.Object) State {
		worst, messages := Current, []string(nil)
		for _, check := range checks {
			state := stateOf(check, obj)
			if state.Ready() {
				continue
			}
			messages = append(messages, state.Message)
			if severity(state.Status) > severity(worst) {
				worst = state.Status
			}
		}
		return State{Status: worst, Message: strings.Join(messages, "; ")}
	}
}

// Any returns a Check: Current when one of checks is. Otherwise the state is the best of theirs
// (InProgress, then Terminating, then Failed), and the message has what each of them misses.
// Any of no checks is Failed.
func Any(checks ...Check) Check {
	if problem := nilCheck(checks); problem != nil {
		return problem
	}
	checks = slices.Clone(checks)
	return func(obj kube.Object) State {
		if len(checks) == 0 {
			return failed("there is no check that could be met")
		}
		best, messages := Failed, []string(nil)
		for _, check := range checks {
			state := stateOf(check, obj)
			if state.Ready() {
				return current()
			}
			messages = append(messages, state.Message)
			if severity(state.Status) < severity(best) {
				best = state.Status
			}
		}
		return State{Status: best, Message: strings.Join(messages, ", or ")}
	}
}

// Not returns a Check: Current while check is anything else, and InProgress while it is Current.
// what says what has to end, for the message: "the database is in maintenance".
func Not(what string, check Check) Check {
	if problem := nilCheck([]Check{check}); problem != nil {
		return problem
	}
	return func(obj kube.Object) State {
		if check(obj).Ready() {
			return inProgress("%s", what)
		}
		return current()
	}
}

// stateOf returns what check says. A status that is none of this package's, of a Check of
// somebody's own, counts as InProgress: it is not Current.
func stateOf(check Check, obj kube.Object) State {
	state := check(obj)
	if severity(state.Status) < 0 {
		state.Status = InProgress
		state.Message = cmp.Or(state.Message, "a check says nothing of its status")
	}
	return state
}

// severity orders statuses from good to bad; less than 0: it is none.
func severity(s Status) int {
	return slices.Index([]Status{Current, InProgress, Terminating, Failed}, s)
}

// nilCheck returns a Check that names the first of checks that is nil; nil: there is none.
func nilCheck(checks []Check) Check {
	for i, check := range checks {
		if check == nil {
			return func(kube.Object) State { return failed("check %d of %d is nil", i+1, len(checks)) }
		}
	}
	return nil
}
