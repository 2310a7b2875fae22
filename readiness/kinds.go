package readiness

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

func claim(o object) State {
	switch phase := o.string("status", "phase"); phase {
	case "Bound":
		return current()
	case "Lost":
		return failed("volume %s is lost", o.string("spec", "volumeName"))
	case "":
		return inProgress("not bound to a volume")
	default:
		return inProgress("not bound to a volume: phase %s", phase)
	}
}

func service(o object) State {
	if o.string("spec", "type") == "LoadBalancer" && len(o.items("status", "loadBalancer", "ingress")) == 0 {
		return inProgress("the load balancer has no address")
	}
	return current()
}

func namespace(o object) State {
	if o.string("status", "phase") == "Terminating" {
		return State{Status: Terminating, Message: "it is being deleted"}
	}
	return current()
}

func definition(o object) State {
	if c, found := o.hasCondition("NamesAccepted", metav1.ConditionFalse); found {
		return failed("its names are not accepted%s", c.describe())
	}
	return o.requiredCondition("Established", metav1.ConditionTrue)
}

func apiService(o object) State { return o.requiredCondition("Available", metav1.ConditionTrue) }

// requiredCondition is conditionState for a condition that may be missing: a missing one is InProgress.
func (o object) requiredCondition(conditionType string, status metav1.ConditionStatus) State {
	c, found := o.condition(conditionType)
	if !found {
		return inProgress("condition %s is not reported yet", conditionType)
	}
	return o.conditionState(conditionType, c, status)
}
