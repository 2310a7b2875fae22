package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/readiness"
)

// Condition types of the summary. People and `kubectl wait` use Ready. The other two exist only while they are true.
const (
	ready       = "Ready"
	reconciling = "Reconciling"
	stalled     = "Stalled"
)

// SetReady sets Ready to True and removes Reconciling and Stalled: the object is in the state that its spec of this
// generation describes. kstatus calls it Current. It reports whether conditions changed.
func SetReady(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	return setReady(conditions, True(ready, generation, reason, message), "")
}

// SetReconciling sets Ready to False and Reconciling to True, and removes Stalled: the object will reach its desired
// state without intervention. kstatus calls it InProgress. It reports whether conditions changed.
func SetReconciling(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	return setReady(conditions, False(ready, generation, reason, message), reconciling)
}

// setReady sets summary, and the condition of type also with the same reason and message. It removes the others.
func setReady(conditions *[]metav1.Condition, summary metav1.Condition, also string) (changed bool) {
	for _, conditionType := range []string{reconciling, stalled} {
		if conditionType != also {
			changed = meta.RemoveStatusCondition(conditions, conditionType) || changed
		}
	}
	changed = Set(conditions, summary) || changed
	return also != "" &&
		Set(conditions, True(also, summary.ObservedGeneration, summary.Reason, summary.Message)) || changed
}

// SetStalled sets Ready to False and Stalled to True, and removes Reconciling: the object will not reach its desired
// state before a person changes something. kstatus calls it Failed. It reports whether conditions changed.
func SetStalled(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	return setReady(conditions, False(ready, generation, reason, message), stalled)
}

// Reasons that Summarize sets.
const (
	reasonCurrent     = "Current"     // with Ready
	reasonInProgress  = "InProgress"  // with Reconciling
	reasonFailed      = "Failed"      // with Stalled
	reasonTerminating = "Terminating" // with Reconciling
	reasonUndecided   = "Undecided"   // with Reconciling, and Ready Unknown
)

// Summarize sets the conditions from the states of all parts of the object, such as its children. The worst state
// counts: any Failed means SetStalled; otherwise any InProgress, Terminating or unknown one (a State without a
// Status) means SetReconciling, with Ready Unknown if all states that are not Current are unknown; otherwise, and for
// no states, SetReady. It reports whether conditions changed.
//
// The message joins the different messages of the states that count, in their order: the first five, and the number
// of others. So each message should name the part:
//
//	status.Summarize(&conditions, 3,
//		readiness.State{Status: readiness.Current},
//		readiness.State{Status: readiness.InProgress, Message: "Deployment shop/web: 1 of 3 replicas is up"})
func Summarize(conditions *[]metav1.Condition, generation int64, states ...readiness.State) (changed bool) {
	const all readiness.Status = "all"
	messages := map[readiness.Status][]string{}
	for _, s := range states {
		if s.Status == readiness.Current {
			continue
		}
		for _, group := range []readiness.Status{s.Status, all} {
			messages[group] = append(messages[group], cmp.Or(s.Message, string(s.Status), "not known"))
		}
	}
	has := func(status readiness.Status) bool { return len(messages[status]) > 0 }
	switch {
	case has(readiness.Failed):
		return SetStalled(conditions, generation, reasonFailed, joinDistinct(messages[readiness.Failed]))
	case has(readiness.InProgress):
		return SetReconciling(conditions, generation, reasonInProgress, joinDistinct(messages[all]))
	case has(readiness.Terminating):
		return SetReconciling(conditions, generation, reasonTerminating, joinDistinct(messages[all]))
	case has(all):
		return setReady(conditions, newCondition(ready, metav1.ConditionUnknown, generation, reasonUndecided,
			joinDistinct(messages[all])), reconciling)
	}
	return SetReady(conditions, generation, reasonCurrent, "")
}

// joinDistinct joins the different messages.
func joinDistinct(messages []string) string {
	const shown = 5
	var distinct []string
	for _, message := range messages {
		if !slices.Contains(distinct, message) {
			distinct = append(distinct, message)
		}
	}
	if len(distinct) <= shown {
		return strings.Join(distinct, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(distinct[:shown], "; "), len(distinct)-shown)
}
