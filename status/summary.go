package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/readiness"
)

// The condition types of the summary. Ready is what people and `kubectl wait` look at; the other
// two are there only while they are true.
const (
	// ConditionReady says whether the object is what its spec asks for.
	ConditionReady = "Ready"
	// ConditionReconciling says that the controller is at work, or tries again.
	ConditionReconciling = "Reconciling"
	// ConditionStalled says that the controller can do no more: somebody has to change
	// something.
	ConditionStalled = "Stalled"
)

// SetReady says in conditions that the object is what its spec, of this generation, asks for: Ready
// is True, Reconciling and Stalled are removed. kstatus calls it Current. It reports whether
// that changed anything.
func SetReady(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	changed = Remove(conditions, ConditionReconciling, ConditionStalled)
	return Set(conditions, True(ConditionReady, generation, reason, message)) || changed
}

// SetReconciling says that the object is not yet what its spec asks for, and that it will get there
// without anybody's doing: Ready is False, Reconciling True, Stalled is removed. kstatus calls it
// InProgress. It reports whether that changed anything.
func SetReconciling(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	return underWay(conditions, False(ConditionReady, generation, reason, message))
}

// SetUndecided says that nobody can tell whether the object is what its spec asks for, and that the
// controller is finding out: Ready is Unknown, Reconciling True, Stalled is removed. kstatus calls
// it InProgress. It reports whether that changed anything.
func SetUndecided(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	return underWay(conditions, Unknown(ConditionReady, generation, reason, message))
}

// underWay sets ready, and Reconciling for the same reason.
func underWay(conditions *[]metav1.Condition, ready metav1.Condition) (changed bool) {
	changed = Remove(conditions, ConditionStalled)
	changed = Set(conditions, ready) || changed
	return Set(conditions, True(ConditionReconciling, ready.ObservedGeneration, ready.Reason, ready.Message)) || changed
}

// SetStalled says that the object is not what its spec asks for, and will not be before somebody
// changes something: Ready is False, Stalled True, Reconciling is removed. kstatus calls it
// Failed. It reports whether that changed anything.
func SetStalled(conditions *[]metav1.Condition, generation int64, reason, message string) (changed bool) {
	changed = Remove(conditions, ConditionReconciling)
	changed = Set(conditions, False(ConditionReady, generation, reason, message)) || changed
	return Set(conditions, True(ConditionStalled, generation, reason, message)) || changed
}

// Reasons that Summarize gives.
const (
	reasonCurrent     = "Current"     // with Ready
	reasonInProgress  = "InProgress"  // with Reconciling
	reasonFailed      = "Failed"      // with Stalled
	reasonTerminating = "Terminating" // with Reconciling
	reasonUndecided   = "Undecided"   // with Undecided
)

// Summarize says what the states of all that the object consists of come to: those of its
// children, for one. The worst one counts: any Failed is Stalled; otherwise any InProgress,
// Terminating or undecided one (a State without a Status) is Reconciling or, if all that is not
// Current is undecided, Undecided; otherwise, and for no states at all, it is Ready. It reports
// whether that changed anything.
//
// The message is made of the messages of the states that count, each once, in their order: the
// first five, and how many more there are. So it should name what it is about:
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
		return SetStalled(conditions, generation, reasonFailed, joined(messages[readiness.Failed]))
	case has(readiness.InProgress):
		return SetReconciling(conditions, generation, reasonInProgress, joined(messages[all]))
	case has(readiness.Terminating):
		return SetReconciling(conditions, generation, reasonTerminating, joined(messages[all]))
	case has(all):
		return SetUndecided(conditions, generation, reasonUndecided, joined(messages[all]))
	}
	return SetReady(conditions, generation, reasonCurrent, "")
}

// joined makes one message of several.
func joined(messages []string) string {
	const shown = 5
	var once []string
	for _, message := range messages {
		if !slices.Contains(once, message) {
			once = append(once, message)
		}
	}
	if len(once) <= shown {
		return strings.Join(once, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(once[:shown], "; "), len(once)-shown)
}
