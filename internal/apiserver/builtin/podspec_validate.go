package builtin

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podProblems checks the specification of a Pod.
type podProblems struct {
	problems
	spec *corev1.PodSpec
	// metadata is that of the Pod, or nil in a template.
	metadata *metav1.ObjectMeta
	// volumes are the valid volumes, by name.
	volumes map[string]corev1.VolumeSource
	// anyPolicy is true if the stored Pod has a SELinux policy, and so may have any.
	anyPolicy bool
}

// validateTemplate checks the template of a Pod; old is nil in a new object.
func validateTemplate(template, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	p := podProblems{spec: &template.Spec}
	p.anyPolicy = old != nil && hasPolicy(&old.Spec)
	p.add(metavalidation.ValidateLabels(template.Labels, path.Child("labels"))...)
	p.add(validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	p.podAnnotations(template.Annotations, path.Child("annotations"))
	p.podSpec(path.Child("spec"))
	if len(template.Spec.EphemeralContainers) > 0 {
		p.forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
	return p.list
}

func hasPolicy(spec *corev1.PodSpec) bool {
	return spec.SecurityContext != nil && spec.SecurityContext.SELinuxChangePolicy != nil
}

// podAnnotations checks the annotations that have a meaning for Pods.
func (p *podProblems) podAnnotations(annotations map[string]string, path *field.Path) {
	if value, exists := annotations[corev1.MirrorPodAnnotationKey]; exists && p.spec.NodeName == "" {
		p.invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod "+
			"annotation is set")
	}
	if value, exists := annotations[corev1.PodDeletionCost]; exists && !isDeletionCost(value) {
		p.invalid(path.Key(corev1.PodDeletionCost), value, "must be a 32bit integer")
	}
}

// isDeletionCost reports whether a text is a 32 bit number in its shortest form.
func isDeletionCost(value string) bool {
	n, err := strconv.ParseInt(value, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == value
}

// hostUsers reports whether the Pod uses the user namespace of the host.
func (p *podProblems) hostUsers() bool { return p.spec.HostUsers == nil || *p.spec.HostUsers }

func (p *podProblems) podSpec(path *field.Path) {
	spec := p.spec
	if spec.TerminationGracePeriodSeconds == nil {
		p.required(path.Child("terminationGracePeriodSeconds"), "")
	}
	p.checkVolumes(path.Child("volumes"))
	p.containers(path.Child("containers"))
	p.initContainers(path.Child("initContainers"))
	p.ephemeralContainers(path.Child("ephemeralContainers"))
	p.podResources(path.Child("resources"))
	p.hostNetwork(path.Child("containers"))
	requiredOneOf(&p.problems, path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	requiredOneOf(&p.problems, path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	p.add(metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	if spec.SecurityContext != nil {
		p.podSecurity(spec.SecurityContext, path.Child("securityContext"))
	}
	if spec.Affinity != nil {
		p.affinity(spec.Affinity, path.Child("affinity"))
	}
	p.dnsConfig(path.Child("dnsConfig"))
	p.gates(path)
	p.topologySpread(path.Child("topologySpreadConstraints"))
	p.isolatedUsers(path)
	p.hostnameOverride(path)
	p.optionalName(path.Child("serviceAccountName"), spec.ServiceAccountName, validation.ValidateServiceAccountName)
	p.optionalName(path.Child("nodeName"), spec.NodeName, validation.NameIsDNSSubdomain)
	if n := spec.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > math.MaxInt32) {
		p.invalid(path.Child("activeDeadlineSeconds"), *n, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	p.optionalName(path.Child("hostname"), spec.Hostname, validation.NameIsDNSLabel)
	p.optionalName(path.Child("subdomain"), spec.Subdomain, validation.NameIsDNSLabel)
	p.tolerations(spec.Tolerations, path.Child("tolerations"))
	p.hostAliases(path.Child("hostAliases"))
	p.classes(path)
	if spec.Overhead != nil {
		p.resources(&corev1.ResourceRequirements{Limits: spec.Overhead}, path.Child("overhead"))
	}
	if spec.OS != nil && p.nonEmpty(path.Child("os", "name"), string(spec.OS.Name)) {
		oneOf(&p.problems, path.Child("os"), spec.OS.Name, corev1.Linux, corev1.Windows)
	}
	p.fileKeyVolumes(path)
}

// optionalName checks a name unless it is empty.
func (p *problems) optionalName(path *field.Path, name string, check validation.ValidateNameFunc) {
	if name != "" {
		p.invalidFor(path, name, check(name, false))
	}
}

// gates checks the gates of readiness and of scheduling.
func (p *podProblems) gates(path *field.Path) {
	for i, gate := range p.spec.ReadinessGates {
		p.invalidFor(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType),
			utilvalidation.IsQualifiedName(string(gate.ConditionType)))
	}
	seen := names{}
	for i, gate := range p.spec.SchedulingGates {
		path := path.Child("schedulingGates").Index(i)
		p.invalidFor(path, gate.Name, utilvalidation.IsQualifiedName(gate.Name))
		seen.unique(&p.problems, path, gate.Name)
	}
}

func (p *podProblems) hostAliases(path *field.Path) {
	for i, alias := range p.spec.HostAliases {
		path := path.Index(i)
		p.address(path.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			p.invalidFor(path.Child("hostnames").Index(j), name, utilvalidation.IsDNS1123Subdomain(name))
		}
	}
}

// classes checks the classes of priority and runtime, and the preemption policy.
func (p *podProblems) classes(path *field.Path) {
	p.optionalName(path.Child("priorityClassName"), p.spec.PriorityClassName, validation.NameIsDNSSubdomain)
	if name := p.spec.RuntimeClassName; name != nil {
		p.invalidFor(path.Child("runtimeClassName"), *name, validation.NameIsDNSSubdomain(*name, false))
	}
	if policy := p.spec.PreemptionPolicy; policy != nil {
		requiredOneOf(&p.problems, path.Child("preemptionPolicy"), *policy, corev1.PreemptLowerPriority,
			corev1.PreemptNever)
	}
}

// address checks an IP address in its usual form. Those of old are valid in any form.
func (p *problems) address(path *field.Path, value string, old ...string) {
	p.add(utilvalidation.IsValidIPForLegacyField(path, value, true, old)...)
}

func (p *podProblems) hostNetwork(path *field.Path) {
	if !p.spec.HostNetwork {
		return
	}
	for i, c := range p.spec.Containers {
		for j, port := range c.Ports {
			if (p.metadata != nil || port.HostPort != 0) && port.HostPort != port.ContainerPort {
				p.invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// isolatedUsers checks what a Pod with its own user namespace must not have.
func (p *podProblems) isolatedUsers(path *field.Path) {
	if p.hostUsers() {
		return
	}
	const when = "when `hostUsers` is false"
	for _, f := range []struct {
		name string
		set  bool
	}{{"hostNetwork", p.spec.HostNetwork}, {"HostPID", p.spec.HostPID}, {"HostIPC", p.spec.HostIPC}} {
		if f.set {
			p.forbidden(path.Child(f.name), when)
		}
	}
	for _, c := range containerPaths(p.spec, path) {
		if len(c.VolumeDevices) > 0 {
			p.forbidden(c.path.Child("volumeDevices"), when)
		}
	}
}

// containerPath is a container and where it is.
type containerPath struct {
	*corev1.Container
	path *field.Path
}

// containerPaths returns all containers of a Pod: init containers, containers, ephemeral containers.
func containerPaths(spec *corev1.PodSpec, path *field.Path) []containerPath {
	all := make([]containerPath, 0, len(spec.Containers)+len(spec.InitContainers))
	for i, c := range allContainers(spec) {
		switch regular := i - len(spec.InitContainers); {
		case regular < 0:
			all = append(all, containerPath{c, path.Child("initContainers").Index(i)})
		case regular < len(spec.Containers):
			all = append(all, containerPath{c, path.Child("containers").Index(regular)})
		default:
			all = append(all, containerPath{c, path.Child("ephemeralContainers").Index(regular - len(spec.Containers))})
		}
	}
	return all
}

func (p *podProblems) hostnameOverride(path *field.Path) {
	name := p.spec.HostnameOverride
	if name == nil {
		return
	}
	path = path.Child("hostnameOverride")
	if qualified := p.spec.SetHostnameAsFQDN; qualified != nil && *qualified {
		p.forbidden(path, "may not be specified when setHostnameAsFQDN is true")
	}
	if p.spec.HostNetwork {
		p.forbidden(path, "may not be specified when hostNetwork is true")
	}
	const maxLength = 64
	if len(*name) > maxLength {
		p.add(field.TooLong(path, "", maxLength))
	}
	p.invalidFor(path, *name, utilvalidation.IsDNS1123Subdomain(*name))
}

func (p *podProblems) dnsConfig(path *field.Path) {
	config := p.spec.DNSConfig
	if p.spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			p.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if len(config.Nameservers) == 0 {
			p.required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if config == nil {
		return
	}
	const maxServers, maxSearches, maxLength = 3, 32, 2048
	if len(config.Nameservers) > maxServers {
		p.invalid(path.Child("nameservers"), config.Nameservers,
			fmt.Sprintf("must not have more than %d nameservers", maxServers))
	}
	for i, server := range config.Nameservers {
		p.address(path.Child("nameservers").Index(i), server)
	}
	searches := path.Child("searches")
	if len(config.Searches) > maxSearches {
		p.invalid(searches, config.Searches, fmt.Sprintf("must not have more than %d search paths", maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxLength {
		p.invalid(searches, config.Searches,
			fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxLength))
	}
	for i, search := range config.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			p.invalidFor(searches.Index(i), search, utilvalidation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			p.required(path.Child("options").Index(i), "must not be empty")
		}
	}
}
