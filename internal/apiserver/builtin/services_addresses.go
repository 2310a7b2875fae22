package builtin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateClusterIPs checks clusterIP, clusterIPs and the fields for families of addresses.
func validateClusterIPs(s, old *corev1.Service) field.ErrorList {
	if !hasClusterIP(s) {
		return nil
	}
	v := &serviceProblems{service: s, old: old, spec: field.NewPath("spec")}
	spec, path := &s.Spec, v.spec.Child("clusterIPs")
	switch {
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		v.add(field.Required(path, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		v.add(field.Invalid(path, spec.ClusterIPs, "first value must match `clusterIP`"))
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		v.add(field.Invalid(path, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	}
	v.families()
	if v.clusterIPs(path) {
		v.familiesOfIPs(path)
	}
	return v.errs
}

func (v *serviceProblems) families() {
	spec, path := &v.service.Spec, v.spec.Child("ipFamilies")
	for i, family := range spec.IPFamilies {
		supported(v, path.Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if slices.Contains(spec.IPFamilies[:i], family) {
			v.add(field.Duplicate(path.Index(i), family))
		}
	}
	if policy := spec.IPFamilyPolicy; policy != nil {
		supported(v, v.spec.Child("ipFamilyPolicy"), *policy, corev1.IPFamilyPolicyPreferDualStack,
			corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	}
}

// clusterIPs checks the form of clusterIPs, and reports whether each of them is valid.
func (v *serviceProblems) clusterIPs(path *field.Path) (valid bool) {
	var existing []string
	if v.old != nil {
		existing = v.old.Spec.ClusterIPs
	}
	ips := v.service.Spec.ClusterIPs
	valid = true
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				valid = false
				v.add(field.Invalid(path, ips, "'None' must be the first and only value"))
			}
			continue
		}
		errs := utilvalidation.IsValidIPForLegacyField(path.Index(i), ip, true, existing)
		valid = valid && len(errs) == 0
		v.add(errs...)
	}
	if len(ips) > 2 {
		v.add(field.Invalid(path, ips, "may only hold up to 2 values"))
	}
	return valid
}

// familiesOfIPs checks that clusterIPs are of the families of the Service, and at most one of each.
func (v *serviceProblems) familiesOfIPs(path *field.Path) {
	spec, ipv6 := &v.service.Spec, 0
	for _, ip := range spec.ClusterIPs {
		if isIPv6(ip) {
			ipv6++
		}
	}
	if n := len(spec.ClusterIPs); n > 1 && (ipv6 == 0 || ipv6 == n) {
		v.add(field.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	for i, ip := range spec.ClusterIPs {
		if withoutClusterIP(v.service) || i >= len(spec.IPFamilies) {
			break
		}
		family := spec.IPFamilies[i]
		if family == corev1.IPv4Protocol && isIPv6(ip) || family == corev1.IPv6Protocol && !isIPv6(ip) {
			v.add(field.Invalid(path.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", family, i)))
		}
	}
}

func (v *serviceProblems) externalIPs() {
	var existing []string
	if v.old != nil {
		existing = v.old.Spec.ExternalIPs
	}
	for i, ip := range v.service.Spec.ExternalIPs {
		path := v.spec.Child("externalIPs").Index(i)
		if errs := utilvalidation.IsValidIPForLegacyField(path, ip, true, existing); len(errs) > 0 {
			v.add(errs...)
			continue
		}
		address, err := netip.ParseAddr(ip)
		if err != nil {
			continue // an address of the old Service in a form that is not allowed any more
		}
		for message, wrong := range map[string]bool{
			fmt.Sprintf("may not be unspecified (%s)", ip):                           address.IsUnspecified(),
			"may not be in the loopback range (127.0.0.0/8, ::1/128)":                address.IsLoopback(),
			"may not be in the link-local range (169.254.0.0/16, fe80::/10)":         address.IsLinkLocalUnicast(),
			"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)": address.IsLinkLocalMulticast(),
		} {
			if wrong { // at most one of them
				v.add(field.Invalid(path, ip, message))
			}
		}
	}
}

func (v *serviceProblems) sourceRanges() {
	spec := &v.service.Spec
	const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"
	if len(spec.LoadBalancerSourceRanges) > 0 {
		path := v.spec.Child("LoadBalancerSourceRanges")
		v.forbid(spec.Type != corev1.ServiceTypeLoadBalancer, path, onlyLoadBalancer)
		var existing []string
		if v.old != nil {
			for _, value := range v.old.Spec.LoadBalancerSourceRanges {
				existing = append(existing, strings.TrimSpace(value))
			}
		}
		for i, value := range spec.LoadBalancerSourceRanges {
			v.add(utilvalidation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(value), true, existing)...)
		}
		return
	}
	value, exists := v.service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !exists {
		return
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	v.forbid(spec.Type != corev1.ServiceTypeLoadBalancer, path, onlyLoadBalancer)
	if value = strings.TrimSpace(value); value == "" || v.old != nil &&
		v.old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == value {
		return
	}
	for cidr := range strings.SplitSeq(value, ",") {
		v.add(utilvalidation.IsValidCIDRForLegacyField(path, strings.TrimSpace(cidr), true, nil)...)
	}
}

// validateIngress checks the status of a Service.
func validateIngress(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingresses := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if len(ingresses) == 0 {
			return nil
		}
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	v := &serviceProblems{}
	var existing []string
	for _, ingress := range old.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			existing = append(existing, ingress.IP)
		}
	}
	for i, ingress := range ingresses {
		at := path.Index(i)
		if ingress.IP != "" {
			v.add(utilvalidation.IsValidIPForLegacyField(at.Child("ip"), ingress.IP, true, existing)...)
		}
		switch mode := at.Child("ipMode"); {
		case ingress.IP != "" && ingress.IPMode == nil:
			v.add(field.Required(mode, "must be specified when `ip` is set"))
		case ingress.IP != "":
			supported(v, mode, *ingress.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		default:
			v.forbid(ingress.IPMode != nil, mode, "may not be specified when `ip` is not set")
		}
		if ingress.Hostname != "" {
			v.texts(at.Child("hostname"), ingress.Hostname, utilvalidation.IsDNS1123Subdomain(ingress.Hostname))
			if _, err := netip.ParseAddr(ingress.Hostname); err == nil {
				v.add(field.Invalid(at.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return v.errs
}
