package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resources checks the resources of a container.
func (p *podProblems) resources(r *corev1.ResourceRequirements, path *field.Path) {
	p.requirements(r, p.resourceName, path)
}

// requirements checks requests and limits. resourceName checks the names of their resources.
func (p *podProblems) requirements(
	r *corev1.ResourceRequirements, resourceName func(corev1.ResourceName, *field.Path), path *field.Path,
) {
	hugePages, cpuOrMemory := false, false
	check := func(name corev1.ResourceName, quantity resource.Quantity, path *field.Path) {
		resourceName(name, path)
		if quantity.Sign() < 0 {
			p.invalid(path, quantity.String(), isNegative)
		}
		if isInteger(name) && quantity.MilliValue()%1000 != 0 {
			p.invalid(path, quantity, "must be an integer")
		}
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			hugePages = true
			page, err := resource.ParseQuantity(size)
			if err != nil || page.Sign() <= 0 || page.MilliValue()%1000 != 0 || quantity.Value()%page.Value() != 0 {
				p.invalid(path, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s",
					quantity.String(), name))
			}
		}
		cpuOrMemory = cpuOrMemory || isCPUOrMemory(name)
	}
	limits, requests := path.Child("limits"), path.Child("requests")
	for _, name := range sortedKeys(r.Limits) {
		check(name, r.Limits[name], limits.Key(string(name)))
	}
	for _, name := range sortedKeys(r.Requests) {
		quantity := r.Requests[name]
		check(name, quantity, requests.Key(string(name)))
		overcommit := isNative(name) && !isHugePages(name)
		limit, exists := r.Limits[name]
		switch compared := quantity.Cmp(limit); {
		case !exists && !overcommit:
			p.required(limits, "Limit must be set for non overcommitable resources")
		case exists && compared != 0 && !overcommit:
			p.invalid(requests, quantity.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case exists && compared > 0:
			p.invalid(requests, quantity.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name,
				limit.String()))
		}
	}
	if hugePages && !cpuOrMemory {
		p.forbidden(path, "HugePages require cpu or memory")
	}
	p.claims(r.Claims, path.Child("claims"))
}

// claims checks the resource claims that a container uses.
func (p *podProblems) claims(claims []corev1.ResourceClaim, path *field.Path) {
	seen := names{}
	for i, claim := range claims {
		path := path.Index(i)
		if !p.nonEmpty(path, claim.Name) {
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			p.dnsLabel(path.Child("request"), claim.Request)
			key += "/" + claim.Request
		}
		seen.unique(&p.problems, path, key)
		var known []string
		found := false
		for _, c := range p.spec.ResourceClaims {
			known = append(known, c.Name)
			found = found || c.Name == claim.Name
		}
		if !found {
			err := field.NotFound(path, claim.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(known) > 0 {
				err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(known, ", ")
			}
			p.add(err)
		}
	}
}

func (p *podProblems) resourceName(name corev1.ResourceName, path *field.Path) {
	messages := utilvalidation.IsQualifiedName(string(name))
	p.invalidFor(path, name, messages)
	switch {
	case !strings.Contains(string(name), "/"):
		if len(messages) == 0 && !isStandardResource(name) {
			p.invalid(path, name, "must be a standard resource type or fully qualified")
		}
		if !isContainerResource(name) {
			p.invalid(path, name, "must be a standard resource for containers")
		}
	case !isNative(name) && !isExtended(name):
		p.invalid(path, name, "doesn't follow extended resource name standard")
	}
}

func isContainerResource(name corev1.ResourceName) bool {
	return ofPod(name) || name == corev1.ResourceEphemeralStorage
}

func isStandardResource(name corev1.ResourceName) bool {
	amount := name
	for _, prefix := range []string{"requests.", "limits."} {
		amount = corev1.ResourceName(strings.TrimPrefix(string(amount), prefix))
	}
	return isContainerResource(amount) && (amount == name || !strings.HasPrefix(string(name), "limits.hugepages-")) ||
		name == corev1.ResourceStorage || name == corev1.ResourceRequestsStorage || isObjectCount(name)
}

// isObjectCount reports whether a resource is a number of objects, for quotas.
func isObjectCount(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets,
		corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// isNative reports whether a resource is one of Kubernetes, not of a device plugin.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func isInteger(name corev1.ResourceName) bool { return isObjectCount(name) || isExtended(name) }

func (p *podProblems) resizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) {
	seen := names{}
	for i, policy := range policies {
		seen.unique(&p.problems, path.Index(i), string(policy.ResourceName))
		requiredOneOf(&p.problems, path, policy.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		requiredOneOf(&p.problems, path, policy.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if p.spec.RestartPolicy == corev1.RestartPolicyNever && policy.RestartPolicy != corev1.NotRequired {
			p.invalid(path, policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}
