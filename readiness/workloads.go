package readiness

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// desiredReplicas returns spec.replicas. Default: 1.
func (o object) desiredReplicas() int64 {
	if n, found := o.number("spec", "replicas"); found {
		return n
	}
	return 1
}

// tooFew returns a message if actual is below desired, otherwise "".
func tooFew(actual, desired int64, what string) string {
	if actual >= desired {
		return ""
	}
	return fmt.Sprintf("%d of %d %s", actual, desired, what)
}

// tooMany returns a message if actual is above desired, otherwise "".
func tooMany(actual, desired int64) string {
	if actual <= desired {
		return ""
	}
	return fmt.Sprintf("%d more than %d replicas exist", actual-desired, desired)
}

// firstMessage returns InProgress with the first message that is not empty, and suffix. It returns Current if
// all messages are empty.
func firstMessage(suffix string, messages ...string) State {
	for _, message := range messages {
		if message != "" {
			return inProgress("%s%s", message, suffix)
		}
	}
	return current()
}

func deployment(o object) State {
	if c, found := o.condition("Progressing"); found && c.reason == "ProgressDeadlineExceeded" {
		return failed("it has made no progress for too long%s", c.describe())
	}
	desired, replicas, updated := o.desiredReplicas(), o.statusCount("replicas"), o.statusCount("updatedReplicas")
	suffix := o.replicaFailure()
	if paused, _ := at(o.content, "spec", "paused").(bool); paused {
		suffix += " (it is paused)"
	}
	old := ""
	if replicas > updated {
		old = fmt.Sprintf("%d replicas of an earlier template still exist", replicas-updated)
	}
	state := firstMessage(suffix,
		tooFew(updated, desired, "replicas are updated"),
		old,
		tooMany(replicas, desired),
		tooFew(o.statusCount("availableReplicas"), desired, "replicas are available"),
	)
	if c, found := o.condition("Available"); found && state.Ready() {
		return o.conditionState("Available", c, metav1.ConditionTrue)
	}
	return state
}

// replicaFailure returns the reason why the controller cannot create replicas: ": FailedCreate: exceeded quota", or "".
func (o object) replicaFailure() string {
	c, found := o.hasCondition("ReplicaFailure", metav1.ConditionTrue)
	if !found {
		return ""
	}
	return c.describe()
}

func replicaSet(o object) State {
	desired, replicas := o.desiredReplicas(), o.statusCount("replicas")
	return firstMessage(o.replicaFailure(),
		tooFew(replicas, desired, "replicas are created"),
		tooMany(replicas, desired),
		tooFew(o.statusCount("availableReplicas"), desired, "replicas are available"),
	)
}

func statefulSet(o object) State {
	desired, replicas := o.desiredReplicas(), o.statusCount("replicas")
	available, reported := o.number("status", "availableReplicas")
	if !reported {
		available = o.statusCount("readyReplicas") // before Kubernetes 1.22
	}
	toUpdate, revision := desired, ""
	partition, _ := o.number("spec", "updateStrategy", "rollingUpdate", "partition")
	switch {
	case o.string("spec", "updateStrategy", "type") == "OnDelete":
		toUpdate = 0
	case partition > 0:
		toUpdate = max(desired-partition, 0)
	case o.string("status", "currentRevision") != o.string("status", "updateRevision"):
		// The controller sets currentRevision last, after the last replica is ready.
		revision = "the update to revision " + o.string("status", "updateRevision") + " is not complete"
	}
	return firstMessage("",
		tooFew(replicas, desired, "replicas are created"),
		tooMany(replicas, desired),
		tooFew(o.statusCount("updatedReplicas"), toUpdate, "replicas are updated"),
		tooFew(available, desired, "replicas are available"),
		revision,
	)
}

func daemonSet(o object) State {
	desired := o.statusCount("desiredNumberScheduled")
	toUpdate := desired
	if o.string("spec", "updateStrategy", "type") == "OnDelete" {
		toUpdate = 0
	}
	return firstMessage("",
		tooFew(o.statusCount("currentNumberScheduled"), desired, "nodes have their Pod"),
		tooFew(o.statusCount("updatedNumberScheduled"), toUpdate, "Pods are updated"),
		tooFew(o.statusCount("numberAvailable"), desired, "Pods are available"),
	)
}

// podDisruptionBudget ignores the health of the Pods: a budget limits evictions and requires no Pods, which are
// often created after it.
func podDisruptionBudget(o object) State {
	if c, found := o.hasCondition("DisruptionAllowed", metav1.ConditionFalse); found && c.reason == "SyncFailed" {
		return inProgress("the number of allowed disruptions is unknown%s", c.describe())
	}
	return observedState(o, true)
}

func job(o object) State {
	// Complete and Failed are final, so their generation does not matter.
	if c, found := o.condition("Complete"); found && c.status == metav1.ConditionTrue {
		return current()
	}
	if c, found := o.condition("Failed"); found && c.status == metav1.ConditionTrue {
		return failed("the Job has failed%s", c.describe())
	}
	if suspended, _ := at(o.content, "spec", "suspend").(bool); suspended {
		return inProgress("the Job is suspended")
	}
	if o.string("status", "startTime") == "" {
		return inProgress("the Job has not started")
	}
	progress := fmt.Sprintf("%d Pods are active, %d have failed", o.statusCount("active"), o.statusCount("failed"))
	if desired, found := o.number("spec", "completions"); found {
		progress = fmt.Sprintf("%d of %d completions are done: %s", o.statusCount("succeeded"), desired, progress)
	}
	return inProgress("%s", progress)
}
