package readiness

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Condition returns a Check: Current if the object has a condition of this type with this status. Otherwise
// it is InProgress, or Terminating if the object is being deleted.
//
// A condition of another generation of the object does not count. The generation is the condition's
// observedGeneration, otherwise status.observedGeneration if that is set. An object without the condition is
// InProgress for every status, also for False.
func Condition(conditionType string, status metav1.ConditionStatus) Check {
	return func(obj kube.Object) State {
		return evaluate(obj, func(o object) State {
			c, found := o.condition(conditionType)
			if found && c.observedGeneration == 0 {
				if state := observedState(o, false); !state.Ready() {
					return state
				}
			}
			return o.requiredCondition(conditionType, status)
		})
	}
}

// Ready is a Check for kinds with a condition Ready: it requires Of and that the condition is True. Of alone returns
// Current for a new object before its controller has set a status. A Stalled object is Failed, which ends
// client.WaitFor at once.
func Ready(obj kube.Object) State {
	return evaluate(obj, func(o object) State {
		if state := generalRule(o); !state.Ready() {
			return state // may report the condition already, so All would repeat it
		}
		return o.requiredCondition("Ready", metav1.ConditionTrue)
	})
}

// When returns a Check for objects of type T: Current if holds returns true, otherwise InProgress. The message of
// InProgress is what, such as "the database has no address". An object of another type than T is Failed. The check
// ignores deletion.
//
// holds must not change the object, and must be safe for concurrent use.
func When[T kube.Object](what string, holds func(obj T) bool) Check {
	if holds == nil {
		return func(kube.Object) State { return failed("the function of the check (%q) is nil", what) }
	}
	return func(obj kube.Object) State {
		if usercode.IsNil(obj) {
			return inProgress("object does not exist")
		}
		typed, ok := obj.(T)
		switch {
		case !ok:
			return failed("the check requires a %s, the object is a %T", reflect.TypeFor[T](), obj)
		case !holds(typed):
			return inProgress("%s", what)
		}
		return current()
	}
}

// evaluate calls r for an object that exists, is not being deleted and has readable content.
func evaluate(obj kube.Object, r rule) State {
	if usercode.IsNil(obj) {
		return inProgress("object does not exist")
	}
	if obj.GetDeletionTimestamp() != nil {
		return terminating(obj)
	}
	o, problem, ok := newObject(obj)
	if !ok {
		return unreadable(problem)
	}
	return r(o)
}

// All returns a Check: Current if all checks are. Otherwise its status is the worst one (Failed, then
// Terminating, then InProgress), and its message joins those of all checks that are not Current. All without
// checks is Current.
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
			if statusRank(state.Status) > statusRank(worst) {
				worst = state.Status
			}
		}
		return State{Status: worst, Message: strings.Join(messages, "; ")}
	}
}

// stateOf returns the state of check. An unknown status, from a user's Check, counts as InProgress, because a
// wait must not end with it.
func stateOf(check Check, obj kube.Object) State {
	state := check(obj)
	if statusRank(state.Status) < 0 {
		state.Status = InProgress
		state.Message = cmp.Or(state.Message, "a check returned no status")
	}
	return state
}

// statusRank orders statuses from good to bad. It is negative for an unknown status.
func statusRank(s Status) int {
	return slices.Index([]Status{Current, InProgress, Terminating, Failed}, s)
}

// nilCheck returns a Check that reports the first nil in checks, or nil if no check is nil.
func nilCheck(checks []Check) Check {
	for i, check := range checks {
		if check == nil {
			return func(kube.Object) State { return failed("check %d of %d is nil", i+1, len(checks)) }
		}
	}
	return nil
}
