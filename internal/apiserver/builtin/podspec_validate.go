package builtin

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
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
		p.invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
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
	for i, gate := range spec.ReadinessGates {
		p.invalidFor(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType),
			utilvalidation.IsQualifiedName(string(gate.ConditionType)))
	}
	gates := names{}
	for i, gate := range spec.SchedulingGates {
		p.invalidFor(path.Child("schedulingGates").Index(i), gate.Name, utilvalidation.IsQualifiedName(gate.Name))
		gates.unique(&p.problems, path.Child("schedulingGates").Index(i), gate.Name)
	}
	p.topologySpread(path.Child("topologySpreadConstraints"))
	p.isolatedUsers(path)
	p.hostnameOverride(path)
	optionalName := func(name, value string, check validation.ValidateNameFunc) {
		if value != "" {
			p.invalidFor(path.Child(name), value, check(value, false))
		}
	}
	optionalName("serviceAccountName", spec.ServiceAccountName, validation.ValidateServiceAccountName)
	optionalName("nodeName", spec.NodeName, validation.NameIsDNSSubdomain)
	if n := spec.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > math.MaxInt32) {
		p.invalid(path.Child("activeDeadlineSeconds"), *n, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	optionalName("hostname", spec.Hostname, validation.NameIsDNSLabel)
	optionalName("subdomain", spec.Subdomain, validation.NameIsDNSLabel)
	p.tolerations(spec.Tolerations, path.Child("tolerations"))
	for i, alias := range spec.HostAliases {
		p.address(path.Child("hostAliases").Index(i).Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			p.invalidFor(path.Child("hostAliases").Index(i).Child("hostnames").Index(j), name, utilvalidation.IsDNS1123Subdomain(name))
		}
	}
	optionalName("priorityClassName", spec.PriorityClassName, validation.NameIsDNSSubdomain)
	if name := spec.RuntimeClassName; name != nil {
		p.invalidFor(path.Child("runtimeClassName"), *name, validation.NameIsDNSSubdomain(*name, false))
	}
	if policy := spec.PreemptionPolicy; policy != nil {
		requiredOneOf(&p.problems, path.Child("preemptionPolicy"), *policy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if spec.Overhead != nil {
		p.resources(&corev1.ResourceRequirements{Limits: spec.Overhead}, path.Child("overhead"))
	}
	if spec.OS != nil && p.nonEmpty(path.Child("os", "name"), string(spec.OS.Name)) {
		oneOf(&p.problems, path.Child("os"), spec.OS.Name, corev1.Linux, corev1.Windows)
	}
	p.fileKeyVolumes(path)
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
		p.invalid(path.Child("nameservers"), config.Nameservers, fmt.Sprintf("must not have more than %d nameservers", maxServers))
	}
	for i, server := range config.Nameservers {
		p.address(path.Child("nameservers").Index(i), server)
	}
	searches := path.Child("searches")
	if len(config.Searches) > maxSearches {
		p.invalid(searches, config.Searches, fmt.Sprintf("must not have more than %d search paths", maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxLength {
		p.invalid(searches, config.Searches, fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxLength))
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

func (p *podProblems) podSecurity(c *corev1.PodSecurityContext, path *field.Path) {
	if c.FSGroup != nil {
		p.invalidFor(path.Child("fsGroup"), *c.FSGroup, utilvalidation.IsValidGroupID(*c.FSGroup))
	}
	p.userAndGroup(c.RunAsUser, c.RunAsGroup, path)
	for i, group := range c.SupplementalGroups {
		p.invalidFor(path.Child("supplementalGroups").Index(i), group, utilvalidation.IsValidGroupID(group))
	}
	if share := p.spec.ShareProcessNamespace; share != nil && *share && p.spec.HostPID {
		p.invalid(path.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	seen := names{}
	for i, sysctl := range c.Sysctls {
		if p.nonEmpty(path.Child("sysctls").Index(i).Child("name"), sysctl.Name) {
			seen.unique(&p.problems, path.Child("sysctls").Index(i).Child("name"), sysctl.Name)
		}
	}
	optionalOneOf(&p.problems, path.Child("fsGroupChangePolicy"), c.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	p.seccomp(c.SeccompProfile, path.Child("seccompProfile"))
	p.appArmor(c.AppArmorProfile, path.Child("appArmorProfile"))
	optionalOneOf(&p.problems, path.Child("supplementalGroupsPolicy"), c.SupplementalGroupsPolicy,
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	if p.anyPolicy {
		optionalOneOf(&p.problems, path.Child("seLinuxChangePolicy"), c.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	} else {
		optionalOneOf(&p.problems, path.Child("seLinuxChangePolicy"), c.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	}
}

func (p *problems) userAndGroup(user, group *int64, path *field.Path) {
	if user != nil {
		p.invalidFor(path.Child("runAsUser"), *user, utilvalidation.IsValidUserID(*user))
	}
	if group != nil {
		p.invalidFor(path.Child("runAsGroup"), *group, utilvalidation.IsValidGroupID(*group))
	}
}

func (p *problems) seccomp(profile *corev1.SeccompProfile, path *field.Path) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		p.required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		oneOf(p, path.Child("type"), profile.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	file, path := profile.LocalhostProfile, path.Child("localhostProfile")
	switch isLocal := profile.Type == corev1.SeccompProfileTypeLocalhost; {
	case isLocal && file == nil:
		p.required(path, "must be set when seccomp type is Localhost")
	case isLocal:
		p.descendingPath(path, *file)
	case file != nil:
		p.invalid(path, internal(profile), "can only be set when seccomp type is Localhost")
	}
}

func (p *problems) appArmor(profile *corev1.AppArmorProfile, path *field.Path) {
	if profile == nil {
		return
	}
	const local = "must be set when AppArmor type is Localhost"
	file, filePath := profile.LocalhostProfile, path.Child("localhostProfile")
	switch profile.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch {
		case file == nil, *file == "":
			p.required(filePath, local)
		case strings.TrimSpace(*file) != *file:
			p.invalid(filePath, *file, "must not be padded with whitespace")
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if file != nil {
			p.invalid(filePath, file, "can only be set when AppArmor type is Localhost")
		}
	case "":
		p.required(path.Child("type"), "type is required when appArmorProfile is set")
	default:
		oneOf(p, path.Child("type"), profile.Type,
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
}

func (p *podProblems) tolerations(tolerations []corev1.Toleration, path *field.Path) {
	for i, t := range tolerations {
		path := path.Index(i)
		if t.Key != "" {
			p.add(metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			p.invalid(path.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			p.invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := content.IsLabelValue(t.Value); len(messages) > 0 {
				p.invalid(path.Child("operator"), t.Value, strings.Join(messages, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				p.invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case "Lt", "Gt": // a feature that is off by default
			valid := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, "Lt", "Gt"}
			p.add(field.NotSupported(path.Child("operator"), t.Operator, valid))
		default:
			oneOf(&p.problems, path.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
		}
		if t.Effect != "" {
			oneOf(&p.problems, path.Child("effect"), t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		}
	}
}

func (p *podProblems) affinity(a *corev1.Affinity, path *field.Path) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	weight := func(path *field.Path, weight int32) {
		if weight <= 0 || weight > 100 {
			p.invalid(path.Child("weight"), weight, "must be in the range 1-100")
		}
	}
	if node := a.NodeAffinity; node != nil {
		path := path.Child("nodeAffinity")
		if selector := node.RequiredDuringSchedulingIgnoredDuringExecution; selector != nil {
			terms := path.Child(required, "nodeSelectorTerms")
			if len(selector.NodeSelectorTerms) == 0 {
				p.required(terms, "must have at least one node selector term")
			}
			for i, term := range selector.NodeSelectorTerms {
				p.nodeTerm(term, false, terms.Index(i))
			}
		}
		for i, term := range node.PreferredDuringSchedulingIgnoredDuringExecution {
			weight(path.Child(preferred).Index(i), term.Weight)
			p.nodeTerm(term.Preference, true, path.Child(preferred).Index(i).Child("preference"))
		}
	}
	terms := func(hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm, path *field.Path) {
		for i, term := range hard {
			p.podTerm(term, path.Child(required).Index(i))
		}
		for i, term := range soft {
			weight(path.Child(preferred).Index(i), term.Weight)
			p.podTerm(term.PodAffinityTerm, path.Child(preferred).Index(i).Child("podAffinityTerm"))
		}
	}
	if pod := a.PodAffinity; pod != nil {
		terms(pod.RequiredDuringSchedulingIgnoredDuringExecution, pod.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if pod := a.PodAntiAffinity; pod != nil {
		terms(pod.RequiredDuringSchedulingIgnoredDuringExecution, pod.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

// nodeTerm checks a term of node affinity. A preferred one may have values that no label can have.
func (p *podProblems) nodeTerm(term corev1.NodeSelectorTerm, preferred bool, path *field.Path) {
	const notAnOperator = "not a valid selector operator"
	for i, r := range term.MatchExpressions {
		path := path.Child("matchExpressions").Index(i)
		values := path.Child("values")
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				p.required(values, "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				p.forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				p.required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			p.invalid(path.Child("operator"), r.Operator, notAnOperator)
		}
		p.add(metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
		for j, value := range r.Values {
			if !preferred {
				p.invalidFor(values.Index(j), value, content.IsLabelValue(value))
			}
		}
	}
	for i, r := range term.MatchFields {
		path := path.Child("matchFields").Index(i)
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			p.invalid(path.Child("operator"), r.Operator, notAnOperator)
		} else if len(r.Values) != 1 {
			p.required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			p.invalid(path.Child("key"), r.Key, "not a valid field selector key")
			continue
		}
		for j, value := range r.Values {
			p.invalidFor(path.Child("values").Index(j), value, validation.NameIsDNSSubdomain(value, false))
		}
	}
}

func (p *podProblems) podTerm(term corev1.PodAffinityTerm, path *field.Path) {
	p.selector(path.Child("labelSelector"), term.LabelSelector)
	p.selector(path.Child("namespaceSelector"), term.NamespaceSelector)
	for _, name := range term.Namespaces {
		p.invalidFor(path.Child("namespace"), name, validation.ValidateNamespaceName(name, false))
	}
	p.labelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, path)
	if term.TopologyKey == "" {
		p.required(path.Child("topologyKey"), "can not be empty")
	}
	p.add(metavalidation.ValidateLabelName(term.TopologyKey, path.Child("topologyKey"))...)
}

// labelKeys checks the keys of labels whose values are added to a selector.
func (p *podProblems) labelKeys(match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) {
	for _, keys := range []struct {
		path *field.Path
		keys []string
	}{{path.Child("matchLabelKeys"), match}, {path.Child("mismatchLabelKeys"), mismatch}} {
		if len(keys.keys) > 0 && selector == nil {
			p.forbidden(keys.path, "must not be specified when labelSelector is not set")
			continue
		}
		for i, key := range keys.keys {
			p.add(metavalidation.ValidateLabelName(key, keys.path.Index(i))...)
		}
	}
	if selector != nil {
		indexes, selected := map[string]int{}, map[string]bool{}
		for i, key := range match {
			indexes[key] = i
		}
		for key := range selector.MatchLabels {
			selected[key] = true
		}
		for _, r := range selector.MatchExpressions {
			if i, exists := indexes[r.Key]; exists && selected[r.Key] {
				p.invalid(path.Index(i), r.Key, "exists in both matchLabelKeys and labelSelector")
			}
			selected[r.Key] = true
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			p.invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (p *podProblems) topologySpread(path *field.Path) {
	constraints := p.spec.TopologySpreadConstraints
	for i, c := range constraints {
		path := path.Index(i)
		p.positive(path.Child("maxSkew"), int64(c.MaxSkew))
		if c.TopologyKey == "" {
			p.required(path.Child("topologyKey"), "can not be empty")
		}
		oneOf(&p.problems, path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		for _, other := range constraints[i+1:] {
			if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				p.add(field.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if n := c.MinDomains; n != nil {
			p.positive(path.Child("minDomains"), int64(*n))
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				p.invalid(path.Child("minDomains"), n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not %s", c.WhenUnsatisfiable))
			}
		}
		optionalOneOf(&p.problems, path.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		optionalOneOf(&p.problems, path.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		p.labelKeys(c.MatchLabelKeys, nil, c.LabelSelector, path)
		p.selector(path.Child("labelSelector"), c.LabelSelector)
	}
}
