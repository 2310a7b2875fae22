package builtin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const notChangeable = "may not change once set"

// withoutClusterIP is isHeadless for any type of Service.
func withoutClusterIP(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// validateService returns what is wrong with a Service; old is nil for a new one.
func validateService(s, old *corev1.Service) field.ErrorList {
	v := &serviceProblems{service: s, old: old, spec: field.NewPath("spec")}
	if old == nil {
		v.errs = apiserver.ValidateCoreMetadata(s, true, validation.NameIsDNSLabel)
	} else {
		v.errs = apiserver.ValidateCoreMetadataUpdate(s, old)
		v.immutable()
	}
	v.all()
	return v.errs
}

// serviceProblems collects what is wrong with a Service.
type serviceProblems struct {
	service, old *corev1.Service
	spec         *field.Path
	errs         field.ErrorList
}

func (v *serviceProblems) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

// forbid adds an error if a field is used in a Service that must not have it.
func (v *serviceProblems) forbid(used bool, path *field.Path, message string) {
	if used {
		v.add(field.Forbidden(path, message))
	}
}

// texts adds an error for each message about a value.
func (v *serviceProblems) texts(path *field.Path, value any, messages []string) {
	for _, message := range messages {
		v.add(field.Invalid(path, value, message))
	}
}

// supported adds an error unless a value is supported.
func supported[T ~string](v *serviceProblems, path *field.Path, value T, values ...T) {
	if !slices.Contains(values, value) {
		v.add(field.NotSupported(path, value, values))
	}
}

// immutable checks the fields that an update must not change.
func (v *serviceProblems) immutable() {
	s, old := v.service, v.old
	spec, before := &s.Spec, &old.Spec
	if hasClusterIP(s) && hasClusterIP(old) {
		ips := v.spec.Child("clusterIPs")
		if !withoutClusterIP(s) || !withoutClusterIP(old) {
			switch {
			case len(before.ClusterIPs) == len(spec.ClusterIPs):
				for i, ip := range before.ClusterIPs {
					if ip != spec.ClusterIPs[i] {
						v.add(field.Invalid(ips.Index(i), spec.ClusterIPs, notChangeable))
					}
				}
			case len(spec.ClusterIPs) == 0:
				v.add(field.Invalid(ips.Index(0), spec.ClusterIPs, "primary clusterIP can not be unset"))
			case len(before.ClusterIPs) > 0 && spec.ClusterIPs[0] != before.ClusterIPs[0]:
				v.add(field.Invalid(ips.Index(0), spec.ClusterIPs, notChangeable))
			}
		}
		families := v.spec.Child("ipFamilies").Index(0)
		if !withoutClusterIP(s) && !withoutClusterIP(old) {
			switch {
			case len(before.IPFamilies) == len(spec.IPFamilies):
				for i, family := range before.IPFamilies {
					if family != spec.IPFamilies[i] {
						v.add(field.Invalid(families, spec.IPFamilies, notChangeable))
					}
				}
			case len(spec.IPFamilies) > 0 && len(before.IPFamilies) > 0 && spec.IPFamilies[0] != before.IPFamilies[0]:
				v.add(field.Invalid(families, spec.ClusterIPs, notChangeable))
			}
		}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && before.Type == spec.Type &&
		!equalPointers(spec.LoadBalancerClass, before.LoadBalancerClass) {
		v.add(field.Invalid(v.spec.Child("loadBalancerClass"), spec.LoadBalancerClass, notChangeable))
	}
	v.loadBalancerClass()
	v.forbid(needsHealthCheck(s) && needsHealthCheck(old) && spec.HealthCheckNodePort != before.HealthCheckNodePort,
		v.spec.Child("healthCheckNodePort"), "field is immutable")
}

func (v *serviceProblems) all() {
	s := v.service
	spec := &s.Spec
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; hasMode && hasHints &&
		mode != hints {
		v.add(field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified",
				corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	if len(spec.Ports) == 0 && !withoutClusterIP(s) && hasClusterIP(s) {
		v.add(field.Required(v.spec.Child("ports"), ""))
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if withoutClusterIP(s) {
			v.add(field.Invalid(v.spec.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		v.externalName()
	}
	names := map[string]bool{}
	for i := range spec.Ports {
		v.port(&spec.Ports[i], v.spec.Child("ports").Index(i), names)
	}
	if spec.Selector != nil {
		v.add(metavalidation.ValidateLabels(spec.Selector, v.spec.Child("selector"))...)
	}
	v.affinity()
	v.add(validateClusterIPs(s, v.old)...)
	v.externalIPs()
	supported(v, v.spec.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	v.uniquePorts()
	v.sourceRanges()
	v.forbid(spec.AllocateLoadBalancerNodePorts != nil && spec.Type != corev1.ServiceTypeLoadBalancer,
		v.spec.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'")
	v.loadBalancerClass()
	v.trafficPolicies()
}

func (v *serviceProblems) externalName() {
	spec := &v.service.Spec
	const message = "may not be set for ExternalName services"
	v.forbid(len(spec.ClusterIPs) > 0, v.spec.Child("clusterIPs"), message)
	v.forbid(len(spec.IPFamilies) > 0, v.spec.Child("ipFamilies"), message)
	v.forbid(spec.IPFamilyPolicy != nil, v.spec.Child("ipFamilyPolicy"), message)
	if name := strings.TrimSuffix(spec.ExternalName, "."); name == "" {
		v.add(field.Required(v.spec.Child("externalName"), ""))
	} else {
		v.texts(v.spec.Child("externalName"), name, utilvalidation.IsDNS1123Subdomain(name))
	}
}

func (v *serviceProblems) port(p *corev1.ServicePort, path *field.Path, names map[string]bool) {
	switch name := path.Child("name"); {
	case p.Name == "" && len(v.service.Spec.Ports) > 1:
		v.add(field.Required(name, ""))
	case p.Name != "":
		v.texts(name, p.Name, utilvalidation.IsDNS1123Label(p.Name))
		if names[p.Name] {
			v.add(field.Duplicate(name, p.Name))
		}
		names[p.Name] = true
	}
	v.texts(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))
	supported(v, path.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if target := path.Child("targetPort"); p.TargetPort.Type == intstr.Int {
		v.texts(target, p.TargetPort.IntValue(), utilvalidation.IsValidPortNum(p.TargetPort.IntValue()))
	} else {
		v.texts(target, p.TargetPort.StrVal, utilvalidation.IsValidPortName(p.TargetPort.StrVal))
	}
	if p.AppProtocol != nil {
		v.texts(path.Child("appProtocol"), *p.AppProtocol, utilvalidation.IsQualifiedName(*p.AppProtocol))
	}
}

// shownPort is the internal type of a port, which messages of the real server contain.
type shownPort struct {
	Name        string
	Protocol    corev1.Protocol
	AppProtocol *string
	Port        int32
	TargetPort  intstr.IntOrString
	NodePort    int32
}

func (v *serviceProblems) uniquePorts() {
	spec := &v.service.Spec
	path := v.spec.Child("ports")
	for i, p := range spec.Ports {
		v.forbid(spec.Type == corev1.ServiceTypeClusterIP && p.NodePort != 0, path.Index(i).Child("nodePort"),
			"may not be used when `type` is 'ClusterIP'")
	}
	duplicate := func(i int, same func(a, b corev1.ServicePort) bool) bool {
		return slices.ContainsFunc(spec.Ports[:i], func(p corev1.ServicePort) bool { return same(p, spec.Ports[i]) })
	}
	for i, p := range spec.Ports {
		if p.NodePort != 0 && duplicate(i, func(a, b corev1.ServicePort) bool {
			return a.Protocol == b.Protocol && a.NodePort == b.NodePort
		}) {
			v.add(field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
	}
	for i, p := range spec.Ports {
		if duplicate(i, func(a, b corev1.ServicePort) bool { return a.Protocol == b.Protocol && a.Port == b.Port }) {
			v.add(field.Duplicate(path.Index(i), shownPort{Protocol: p.Protocol, Port: p.Port}))
		}
	}
}

func (v *serviceProblems) affinity() {
	spec, path := &v.service.Spec, v.spec.Child("sessionAffinityConfig")
	supported(v, v.spec.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	const longest = 86400
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP { // the defaults set the timeout
		if timeout := spec.SessionAffinityConfig.ClientIP.TimeoutSeconds; *timeout <= 0 || *timeout > longest {
			v.add(field.Invalid(path.Child("clientIP", "timeoutSeconds"), timeout,
				fmt.Sprintf("must be greater than 0 and less than %d", longest)))
		}
	}
}

func (v *serviceProblems) loadBalancerClass() {
	class, path := v.service.Spec.LoadBalancerClass, v.spec.Child("loadBalancerClass")
	if class == nil {
		return
	}
	if v.service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		v.texts(path, *class, utilvalidation.IsQualifiedName(*class))
		return
	}
	v.forbid(true, path, "may only be used when `type` is 'LoadBalancer'")
}

func (v *serviceProblems) trafficPolicies() {
	s := v.service
	spec := &s.Spec
	external, health := v.spec.Child("externalTrafficPolicy"), v.spec.Child("healthCheckNodePort")
	switch {
	case externallyAccessible(s):
		supported(v, external, spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)
	case spec.ExternalTrafficPolicy != "":
		v.add(field.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	if needsHealthCheck(s) {
		v.texts(health, spec.HealthCheckNodePort, utilvalidation.IsValidPortNum(int(spec.HealthCheckNodePort)))
	} else if spec.HealthCheckNodePort != 0 {
		v.add(field.Invalid(health, spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and "+
			"`externalTrafficPolicy` is 'Local'"))
	}
	if policy := spec.InternalTrafficPolicy; policy != nil {
		supported(v, v.spec.Child("internalTrafficPolicy"), *policy, corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyLocal)
	}
	if d := spec.TrafficDistribution; d != nil {
		supported(v, v.spec.Child("trafficDistribution"), *d, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
}
