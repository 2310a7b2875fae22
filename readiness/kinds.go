package readiness

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

func claim(o object) State {
	switch phase := o.text("status", "phase"); phase {
	case "Bound":
		return current()
	case "Lost":
		return failed("its volume %s is lost", o.text("spec", "volumeName"))
	case "":
		return inProgress("it is not bound to a volume")
	default:
		return inProgress("it is not bound to a volume: its phase is %s", phase)
	}
}

func service(o object) State {
	if o.text("spec", "type") == "LoadBalancer" && len(o.items("status", "loadBalancer", "ingress")) == 0 {
		return inProgress("the load balancer has no address")
	}
	return current()
}

func namespace(o object) State {
	if o.text("status", "phase") == "Terminating" {
		return State{Status: Terminating, Message: "it is being deleted"}
	}
	return current()
}

func definition(o object) State {
	if c, found := o.is("NamesAccepted", metav1.ConditionFalse); found {
		return failed("its names are not accepted%s", c.why())
	}
	return o.reported("Established", metav1.ConditionTrue)
}

func apiService(o object) State { return o.reported("Available", metav1.ConditionTrue) }

// reported is demand for a condition that must be there.
func (o object) reported(conditionType string, status metav1.ConditionStatus) State {
	c, found := o.condition(conditionType)
	if !found {
		return inProgress("condition %s is not reported yet", conditionType)
	}
	return o.demand(conditionType, c, status)
}
