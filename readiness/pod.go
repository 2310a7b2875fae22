package readiness

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(o object) State {
	switch o.text("status", "phase") {
	case "Succeeded":
		return current()
	case "Failed":
		return failed("it has failed%s", condition{reason: o.text("status", "reason"), message: o.text("status", "message")}.why())
	}
	if _, ready := o.is("Ready", metav1.ConditionTrue); ready {
		return current()
	}
	waiting, crashing := o.waiting()
	switch {
	case crashing != "":
		return failed("%s", crashing)
	case waiting != "":
		return inProgress("%s", waiting)
	}
	if c, found := o.condition("PodScheduled"); found && c.status != metav1.ConditionTrue {
		return inProgress("no node has been found for it%s", c.why())
	}
	if c, found := o.condition("Ready"); found {
		return o.demand("Ready", c, metav1.ConditionTrue)
	}
	return inProgress("it has not started")
}

// waiting returns what the first container waits for that has something to say about it, and
// which one crashes again and again.
func (o object) waiting() (waiting, crashing string) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, status := range o.items("status", list) {
			reason := textAt(status, "state", "waiting", "reason")
			name := textAt(status, "name")
			switch {
			case reason == "CrashLoopBackOff" && crashing == "":
				crashing = fmt.Sprintf("container %s crashes again and again%s", name, lastEnd(status))
			case reason == "", waiting != "", isBeginning(reason):
			default:
				c := condition{reason: reason, message: textAt(status, "state", "waiting", "message")}
				waiting = fmt.Sprintf("container %s waits%s", name, c.why())
			}
		}
	}
	return waiting, crashing
}

// isBeginning is true for what every container waits for at its beginning.
func isBeginning(reason string) bool {
	return reason == "ContainerCreating" || reason == "PodInitializing"
}

// lastEnd returns how a container ended last: " (Error, exit code 1)".
func lastEnd(status map[string]any) string {
	code, found := numberAt(status, "lastState", "terminated", "exitCode")
	if !found {
		return ""
	}
	said := []string{fmt.Sprintf("exit code %d", code)}
	if reason := textAt(status, "lastState", "terminated", "reason"); reason != "" {
		said = []string{reason, said[0]}
	}
	return " (" + strings.Join(said, ", ") + ")"
}
