package readiness

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(o object) State {
	switch o.string("status", "phase") {
	case "Succeeded":
		return current()
	case "Failed":
		return failed("the Pod has failed%s",
			condition{reason: o.string("status", "reason"), message: o.string("status", "message")}.describe())
	}
	if _, ready := o.hasCondition("Ready", metav1.ConditionTrue); ready {
		return current()
	}
	waiting, crashing := o.waitingContainers()
	switch {
	case crashing != "":
		return failed("%s", crashing)
	case waiting != "":
		return inProgress("%s", waiting)
	}
	if c, found := o.condition("PodScheduled"); found && c.status != metav1.ConditionTrue {
		return inProgress("not scheduled to a node%s", c.describe())
	}
	if c, found := o.condition("Ready"); found {
		return o.conditionState("Ready", c, metav1.ConditionTrue)
	}
	return inProgress("the Pod has not started")
}

// waitingContainers returns a message for the first container that waits for an unusual reason, and one for the
// first container in CrashLoopBackOff. Init containers come first.
func (o object) waitingContainers() (waiting, crashing string) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, status := range o.items("status", list) {
			reason := stringAt(status, "state", "waiting", "reason")
			name := stringAt(status, "name")
			switch {
			case reason == "CrashLoopBackOff" && crashing == "":
				crashing = fmt.Sprintf("container %s is in CrashLoopBackOff%s", name, lastTermination(status))
			case reason == "", waiting != "", isNormalStart(reason):
			default:
				c := condition{reason: reason, message: stringAt(status, "state", "waiting", "message")}
				waiting = fmt.Sprintf("container %s is waiting%s", name, c.describe())
			}
		}
	}
	return waiting, crashing
}

// isNormalStart reports whether every container waits for this reason when it starts.
func isNormalStart(reason string) bool {
	return reason == "ContainerCreating" || reason == "PodInitializing"
}

// lastTermination describes the last termination of a container: " (Error, exit code 1)", or "".
func lastTermination(status map[string]any) string {
	code, found := numberAt(status, "lastState", "terminated", "exitCode")
	if !found {
		return ""
	}
	parts := []string{fmt.Sprintf("exit code %d", code)}
	if reason := stringAt(status, "lastState", "terminated", "reason"); reason != "" {
		parts = []string{reason, parts[0]}
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
