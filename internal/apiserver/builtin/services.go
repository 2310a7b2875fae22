package builtin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Services returns the kind Service, in a cluster that has addresses of IPv4 only. Cluster IPs are from serviceRange,
// node ports from 30000 to 32767; the server's random numbers select them. The first address is never selected: in the
// real server, the Service kubernetes has it.
func Services() *apiserver.Kind {
	k := apiserver.Builtin[corev1.Service](corev1.SchemeGroupVersion.WithKind("Service"), "services",
		corev1.AddToScheme)
	k.ShortNames, k.Categories = []string{"svc"}, []string{"all"}
	k.Status, k.CreateOnUpdate = true, true
	k.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) { defaultService(obj.(*corev1.Service)) },
		Allocate: func(obj, old apiserver.Object, stored apiserver.Stored) error {
			a := allocation{Stored: stored, service: obj.(*corev1.Service)}
			if old != nil {
				a.old = old.(*corev1.Service)
			}
			return a.allocate()
		},
		Prepare: func(obj, old apiserver.Object) {
			if old != nil {
				dropUnused(obj.(*corev1.Service), old.(*corev1.Service))
			}
		},
		Stored: func(obj apiserver.Object) bool {
			if s := obj.(*corev1.Service); s.Spec.Type == corev1.ServiceTypeExternalName {
				s.Spec.InternalTrafficPolicy = nil // stored by the real server, but not in its responses
			}
			return false
		},
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			if old == nil {
				return validateService(obj.(*corev1.Service), nil)
			}
			return validateService(obj.(*corev1.Service), old.(*corev1.Service))
		},
		ValidateSubresource: func(_ string, obj, old apiserver.Object) field.ErrorList {
			errs := apiserver.ValidateCoreMetadataUpdate(obj, old)
			return append(errs, validateIngress(obj.(*corev1.Service), old.(*corev1.Service))...)
		},
		Fields: func(obj apiserver.Object) fields.Set {
			s := obj.(*corev1.Service)
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		FieldLabels:   []string{"spec.clusterIP", "spec.type"},
		Warnings:      func(obj, _ apiserver.Object) []string { return serviceWarnings(obj.(*corev1.Service)) },
		ReturnDeleted: true,
	}
	return k
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch affinity := spec.SessionAffinityConfig; {
	case spec.SessionAffinity == corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case spec.SessionAffinity == corev1.ServiceAffinityClientIP &&
		(affinity == nil || affinity.ClientIP == nil || affinity.ClientIP.TimeoutSeconds == nil):
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
		}
	}
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(s) && spec.ExternalTrafficPolicy == "" {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && (takesNodePorts(s) || spec.Type == corev1.ServiceTypeClusterIP) {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if spec.AllocateLoadBalancerNodePorts == nil {
		spec.AllocateLoadBalancerNodePorts = new(true)
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" && ingress.IPMode == nil {
			s.Status.LoadBalancer.Ingress[i].IPMode = new(corev1.LoadBalancerIPModeVIP)
		}
	}
}

// dropUnused clears the fields of an updated Service that its new type does not use, unless the update changes them.
func dropUnused(s, old *corev1.Service) {
	spec, before := &s.Spec, &old.Spec
	if hasClusterIP(old) && !hasClusterIP(s) {
		if spec.ClusterIP == before.ClusterIP && slices.Equal(spec.ClusterIPs, before.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, before.IPFamilies) {
			spec.IPFamilies = nil
		}
		if equalPointers(spec.IPFamilyPolicy, before.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if takesNodePorts(old) && !takesNodePorts(s) && !slices.ContainsFunc(nodePorts(s), func(p int32) bool {
		return !slices.Contains(nodePorts(old), p)
	}) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheck(old) && !needsHealthCheck(s) && spec.HealthCheckNodePort == before.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if before.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if equalPointers(spec.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if equalPointers(spec.LoadBalancerClass, before.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if externallyAccessible(old) && !externallyAccessible(s) &&
		spec.ExternalTrafficPolicy == before.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

func equalPointers[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func isHeadless(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
}

func takesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// allocatesNodePorts reports whether ports without a node port get one.
func allocatesNodePorts(s *corev1.Service) bool {
	enabled := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(enabled == nil || *enabled)
}

func needsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func externallyAccessible(s *corev1.Service) bool {
	return takesNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func serviceWarnings(s *corev1.Service) []string {
	spec, path := &s.Spec, field.NewPath("spec")
	var warnings []string
	if _, exists := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; exists {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if isHeadless(s) {
		if spec.LoadBalancerIP != "" {
			warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(spec.ExternalIPs) > 0 {
			warnings = append(warnings, "spec.externalIPs is ignored for headless services")
		}
		if spec.SessionAffinity != corev1.ServiceAffinityNone {
			warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	if len(spec.ExternalIPs) > 0 && !isHeadless(s) && hasClusterIP(s) {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("loadBalancerIP"),
			spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings, utilvalidation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i),
			cidr)...)
	}
	if spec.Type == corev1.ServiceTypeExternalName && len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q",
			corev1.ServiceTypeExternalName))
	}
	if spec.Type != corev1.ServiceTypeExternalName && spec.ExternalName != "" {
		warnings = append(warnings, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q",
			corev1.ServiceTypeExternalName))
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q",
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}
