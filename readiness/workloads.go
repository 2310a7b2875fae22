package readiness

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wanted is how many replicas the spec asks for: one, where it does not say.
func (o object) wanted() int64 {
	if n, found := o.number("spec", "replicas"); found {
		return n
	}
	return 1
}

// missing returns a message when there are less than wanted.
func missing(have, wanted int64, what string) string {
	if have >= wanted {
		return ""
	}
	return fmt.Sprintf("%d of %d %s", have, wanted, what)
}

// extra returns a message when there are more than wanted.
func extra(have, wanted int64) string {
	if have <= wanted {
		return ""
	}
	return fmt.Sprintf("%d more than %d replicas are there", have-wanted, wanted)
}

// first is Current when every message is empty; otherwise the first one says what is missing,
// and because why.
func first(because string, messages ...string) State {
	for _, message := range messages {
		if message != "" {
			return inProgress("%s%s", message, because)
		}
	}
	return current()
}

func deployment(o object) State {
	if c, found := o.condition("Progressing"); found && c.reason == "ProgressDeadlineExceeded" {
		return failed("it has made no progress for too long%s", c.why())
	}
	wanted, replicas, updated := o.wanted(), o.count("replicas"), o.count("updatedReplicas")
	because := o.replicaFailure()
	if paused, _ := at(o.content, "spec", "paused").(bool); paused {
		because += " (it is paused)"
	}
	old := ""
	if replicas > updated {
		old = fmt.Sprintf("%d replicas of an earlier template are still there", replicas-updated)
	}
	state := first(because,
		missing(updated, wanted, "replicas are updated"),
		old,
		extra(replicas, wanted),
		missing(o.count("availableReplicas"), wanted, "replicas are available"),
	)
	if c, found := o.condition("Available"); found && state.Ready() {
		return o.demand("Available", c, metav1.ConditionTrue)
	}
	return state
}

// replicaFailure returns why no replicas can be created: ": FailedCreate: exceeded quota".
func (o object) replicaFailure() string {
	c, found := o.is("ReplicaFailure", metav1.ConditionTrue)
	if !found {
		return ""
	}
	return c.why()
}

func replicaSet(o object) State {
	wanted, replicas := o.wanted(), o.count("replicas")
	return first(o.replicaFailure(),
		missing(replicas, wanted, "replicas are created"),
		extra(replicas, wanted),
		missing(o.count("availableReplicas"), wanted, "replicas are available"),
	)
}

func statefulSet(o object) State {
	wanted, replicas := o.wanted(), o.count("replicas")
	available, reported := o.number("status", "availableReplicas")
	if !reported {
		available = o.count("readyReplicas") // clusters before 1.22
	}
	toUpdate, revision := wanted, ""
	partition, _ := o.number("spec", "updateStrategy", "rollingUpdate", "partition")
	switch {
	case o.text("spec", "updateStrategy", "type") == "OnDelete":
		toUpdate = 0
	case partition > 0:
		toUpdate = max(wanted-partition, 0)
	case o.text("status", "currentRevision") != o.text("status", "updateRevision"):
		// Its controller says so last, after the last replica is ready.
		revision = "the update to revision " + o.text("status", "updateRevision") + " has not ended"
	}
	return first("",
		missing(replicas, wanted, "replicas are created"),
		extra(replicas, wanted),
		missing(o.count("updatedReplicas"), toUpdate, "replicas are updated"),
		missing(available, wanted, "replicas are available"),
		revision,
	)
}

func daemonSet(o object) State {
	wanted := o.count("desiredNumberScheduled")
	toUpdate := wanted
	if o.text("spec", "updateStrategy", "type") == "OnDelete" {
		toUpdate = 0
	}
	return first("",
		missing(o.count("currentNumberScheduled"), wanted, "nodes have their Pod"),
		missing(o.count("updatedNumberScheduled"), toUpdate, "Pods are updated"),
		missing(o.count("numberAvailable"), wanted, "Pods are available"),
	)
}

// podDisruptionBudget does not ask whether the Pods are healthy: a budget says what evictions may
// do, and asks for no Pods, which may well come after it.
func podDisruptionBudget(o object) State {
	if c, found := o.is("DisruptionAllowed", metav1.ConditionFalse); found && c.reason == "SyncFailed" {
		return inProgress("how many Pods may be disrupted is not known%s", c.why())
	}
	return observed(o, true)
}

func job(o object) State {
	// What a Job has come to is final, whatever generation it was.
	if c, found := o.condition("Complete"); found && c.status == metav1.ConditionTrue {
		return current()
	}
	if c, found := o.condition("Failed"); found && c.status == metav1.ConditionTrue {
		return failed("it has failed%s", c.why())
	}
	if suspended, _ := at(o.content, "spec", "suspend").(bool); suspended {
		return inProgress("it is suspended")
	}
	if o.text("status", "startTime") == "" {
		return inProgress("it has not started")
	}
	progress := fmt.Sprintf("%d Pods are active, %d have failed", o.count("active"), o.count("failed"))
	if wanted, found := o.number("spec", "completions"); found {
		progress = fmt.Sprintf("%d of %d completions are done: %s", o.count("succeeded"), wanted, progress)
	}
	return inProgress("%s", progress)
}
