package builtin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const needsPolicy = "must specify restartPolicy when restart rules are used"

// restartRules checks the restart policy of a single container.
func (p *podProblems) restartRules(c *corev1.Container, path *field.Path) {
	rules := c.RestartPolicyRules
	if c.RestartPolicy != nil {
		oneOf(&p.problems, path.Child("restartPolicy"), *c.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever,
			corev1.ContainerRestartPolicyOnFailure)
	} else if len(rules) > 0 {
		p.required(path.Child("restartPolicy"), needsPolicy)
	}
	const maxRules, maxValues = 20, 255
	path = path.Child("restartPolicyRules")
	if len(rules) > maxRules {
		p.add(field.TooMany(path, len(rules), maxRules))
	}
	for i, rule := range rules {
		path := path.Index(i)
		oneOf(&p.problems, path.Child("action"), rule.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			p.required(path.Child("exitCodes"), "must be specified")
			continue
		}
		oneOf(&p.problems, path.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxValues {
			p.add(field.TooMany(path.Child("exitCodes", "values"), n, maxValues))
		}
	}
}

func (p *podProblems) lifecycleAndProbes(c *corev1.Container, path *field.Path) {
	if l := c.Lifecycle; l != nil {
		for _, h := range []struct {
			name string
			*corev1.LifecycleHandler
		}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
			if h.LifecycleHandler != nil {
				p.handler(corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}, h.Sleep,
					path.Child("lifecycle", h.name))
			}
		}
	}
	for _, probe := range []struct {
		name string
		*corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if probe.Probe == nil {
			continue
		}
		path := path.Child(probe.name)
		p.handler(probe.ProbeHandler, nil, path)
		p.nonNegative(path.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds))
		p.nonNegative(path.Child("timeoutSeconds"), int64(probe.TimeoutSeconds))
		p.nonNegative(path.Child("periodSeconds"), int64(probe.PeriodSeconds))
		p.nonNegative(path.Child("successThreshold"), int64(probe.SuccessThreshold))
		p.nonNegative(path.Child("failureThreshold"), int64(probe.FailureThreshold))
		grace := probe.TerminationGracePeriodSeconds
		if grace != nil && *grace <= 0 {
			p.invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0")
		}
		if probe.Probe == c.ReadinessProbe {
			if grace != nil {
				p.invalid(path.Child("terminationGracePeriodSeconds"), grace, "must not be set for readinessProbes")
			}
		} else if probe.SuccessThreshold != 1 {
			p.invalid(path.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
		}
	}
}

// handler checks that there is exactly one handler, and the first one.
func (p *podProblems) handler(h corev1.ProbeHandler, sleep *corev1.SleepAction, path *field.Path) {
	count := 0
	first := func(name string, exists bool) bool {
		if exists {
			count++
		}
		if exists && count > 1 {
			p.forbidden(path.Child(name), "may not specify more than 1 handler type")
		}
		return exists && count == 1
	}
	if first("exec", h.Exec != nil) && len(h.Exec.Command) == 0 {
		p.required(path.Child("exec", "command"), "")
	}
	if first("httpGet", h.HTTPGet != nil) {
		path := path.Child("httpGet")
		p.nonEmpty(path.Child("path"), h.HTTPGet.Path)
		p.portOrName(path.Child("port"), h.HTTPGet.Port)
		oneOf(&p.problems, path.Child("scheme"), h.HTTPGet.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for _, header := range h.HTTPGet.HTTPHeaders {
			p.invalidFor(path.Child("httpHeaders"), header.Name, utilvalidation.IsHTTPHeaderName(header.Name))
		}
	}
	if first("tcpSocket", h.TCPSocket != nil) {
		p.portOrName(path.Child("tcpSocket", "port"), h.TCPSocket.Port)
	}
	if first("grpc", h.GRPC != nil) {
		p.portOrName(path.Child("grpc", "port"), intstr.FromInt32(h.GRPC.Port))
	}
	if grace := p.spec.TerminationGracePeriodSeconds; first("sleep", sleep != nil) && grace != nil &&
		(sleep.Seconds < 0 || sleep.Seconds > *grace) {
		p.invalid(path.Child("sleep"), sleep.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
	}
	if count == 0 {
		p.required(path, "must specify a handler type")
	}
}

func (p *problems) portOrName(path *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		p.invalidFor(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	} else {
		p.invalidFor(path, port.IntValue(), utilvalidation.IsValidPortNum(port.IntValue()))
	}
}
