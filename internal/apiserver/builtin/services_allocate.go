package builtin

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const (
	serviceRange = "10.96.0.0/16"
	// The first addresses and ports are only for clients that request them.
	chosenAddresses, chosenPorts = 256, 86
	firstPort, lastPort          = 30000, 32767
)

// allocation gives a Service its addresses and ports, and completes the fields that depend on them.
type allocation struct {
	apiserver.Stored
	service, old *corev1.Service // old is nil for a new Service
}

func (a *allocation) allocate() error {
	if a.old != nil {
		a.keepAllocated()
	}
	a.normalizeClusterIPs()
	if err := a.completeFamilies(); err != nil {
		return err
	}
	if err := a.allocateClusterIP(); err != nil {
		return err
	}
	return a.allocatePorts()
}

// keepAllocated completes an update with the values that the server has chosen before.
func (a *allocation) keepAllocated() {
	spec, before := &a.service.Spec, &a.old.Spec
	if hasClusterIP(a.old) && hasClusterIP(a.service) {
		if spec.ClusterIP == "" {
			spec.ClusterIP = before.ClusterIP
		}
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = slices.Clone(before.ClusterIPs)
		}
	}
	if allocatesNodePorts(a.old) && allocatesNodePorts(a.service) {
		used, byName := nodePorts(a.service), map[string]int32{}
		for _, port := range before.Ports {
			byName[port.Name] = port.NodePort
		}
		for i := range spec.Ports {
			if port := &spec.Ports[i]; port.NodePort == 0 && !slices.Contains(used, byName[port.Name]) {
				port.NodePort = byName[port.Name]
			}
		}
	}
	if needsHealthCheck(a.old) && needsHealthCheck(a.service) && spec.HealthCheckNodePort == 0 {
		spec.HealthCheckNodePort = before.HealthCheckNodePort
	}
}

// normalizeClusterIPs sets clusterIPs for clients that set only clusterIP.
func (a *allocation) normalizeClusterIPs() {
	spec := &a.service.Spec
	if a.old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return
	}
	before := &a.old.Spec
	if len(before.ClusterIPs) > 0 && len(spec.ClusterIPs) == 0 && before.ClusterIP == spec.ClusterIP {
		spec.ClusterIPs = slices.Clone(before.ClusterIPs)
	}
	if before.ClusterIP == spec.ClusterIP || !slices.Equal(before.ClusterIPs, spec.ClusterIPs) {
		return
	}
	spec.ClusterIPs = nil
	if spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// completeFamilies sets the families of addresses and their policy.
func (a *allocation) completeFamilies() error {
	spec, path := &a.service.Spec, field.NewPath("spec")
	if !hasClusterIP(a.service) || a.keepsDualStack() {
		return nil
	}
	a.defaultFamilyPolicy()
	if errs := validateClusterIPs(a.service, a.old); len(errs) > 0 {
		return a.invalid(errs)
	}
	errs := a.applyFamilyPolicy(path.Child("ipFamilyPolicy"))
	errs = append(errs, a.addFamiliesOfIPs(path.Child("clusterIPs"))...)
	if len(errs) > 0 {
		return a.invalid(errs)
	}
	if spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 {
		a.completeHeadlessFamilies()
		return nil
	}
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if family != corev1.IPv4Protocol {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family,
				"not configured on this cluster"))
		}
	}
	if len(errs) > 0 {
		return a.invalid(errs)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return nil
}

func (a *allocation) defaultFamilyPolicy() {
	spec := &a.service.Spec
	switch {
	case spec.IPFamilyPolicy != nil:
	case a.old != nil && a.old.Spec.IPFamilyPolicy != nil:
		spec.IPFamilyPolicy = new(*a.old.Spec.IPFamilyPolicy)
	case spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	default:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
}

// applyFamilyPolicy removes the second address and family from a Service that is updated to SingleStack, and returns
// what contradicts the policy.
func (a *allocation) applyFamilyPolicy(path *field.Path) (errs field.ErrorList) {
	spec := &a.service.Spec
	wrongPolicy := func(message string) {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, message))
	}
	single := *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if a.old != nil && single {
		if slices.Equal(spec.ClusterIPs, a.old.Spec.ClusterIPs) && len(spec.ClusterIPs) > 1 {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if slices.Equal(spec.IPFamilies, a.old.Spec.IPFamilies) && len(spec.IPFamilies) > 1 {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
	}
	if a.old != nil && !single {
		if len(spec.ClusterIPs) > 0 && len(spec.ClusterIPs) < len(a.old.Spec.ClusterIPs) {
			wrongPolicy("must be 'SingleStack' to release the secondary cluster IP")
		}
		if len(spec.IPFamilies) > 0 && len(spec.IPFamilies) < len(a.old.Spec.IPFamilies) {
			wrongPolicy("must be 'SingleStack' to release the secondary IP family")
		}
	}
	if single && len(spec.ClusterIPs) == 2 {
		wrongPolicy("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	}
	if single && len(spec.IPFamilies) == 2 {
		wrongPolicy("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	}
	return errs
}

// addFamiliesOfIPs adds the families of addresses for which the Service has no family.
func (a *allocation) addFamiliesOfIPs(path *field.Path) (errs field.ErrorList) {
	spec := &a.service.Spec
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		if i < len(spec.IPFamilies) {
			continue
		}
		if isIPv6(ip) {
			errs = append(errs, field.Invalid(path.Index(i), spec.ClusterIPs, "IPv6 is not configured on this cluster"))
		} else {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPv4Protocol)
		}
	}
	return errs
}

// completeHeadlessFamilies sets the families of a Service without addresses and selector: both, unless it is
// SingleStack.
func (a *allocation) completeHeadlessFamilies() {
	spec := &a.service.Spec
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if len(spec.IPFamilies) >= 2 || *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		return
	}
	other := corev1.IPv6Protocol
	if spec.IPFamilies[0] == corev1.IPv6Protocol {
		other = corev1.IPv4Protocol
	}
	spec.IPFamilies = append(spec.IPFamilies, other)
}

// keepsDualStack reports whether an update leaves the policy PreferDualStack and what depends on it.
func (a *allocation) keepsDualStack() bool {
	if a.old == nil || a.service.Spec.Type != a.old.Spec.Type {
		return false
	}
	spec, before, prefer := &a.service.Spec, &a.old.Spec, corev1.IPFamilyPolicyPreferDualStack
	return spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == prefer &&
		(before.IPFamilyPolicy == nil || *before.IPFamilyPolicy == prefer) &&
		slices.Equal(spec.ClusterIPs, before.ClusterIPs) && slices.Equal(spec.IPFamilies, before.IPFamilies)
}

func (a *allocation) allocateClusterIP() error {
	spec := &a.service.Spec
	if !hasClusterIP(a.service) {
		return nil
	}
	if a.old != nil && hasClusterIP(a.old) {
		a.addIPv4()
		return nil
	}
	if withoutClusterIP(a.service) {
		return nil
	}
	requested := ""
	if len(spec.ClusterIPs) > 0 {
		requested = spec.ClusterIPs[0]
	}
	ip, problem := a.address(requested)
	if problem == "" && !a.DryRun {
		problem = a.nameProblem(ip)
	}
	if problem != "" {
		text := "failed to allocate IP: "
		if requested != "" {
			text = "failed to allocate IP " + requested + ": "
		}
		shown := []string{requested}
		if len(spec.ClusterIPs) > 0 {
			shown = spec.ClusterIPs
		}
		return a.invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), shown, text+problem)})
	}
	spec.ClusterIP = ip
	if requested == "" {
		spec.ClusterIPs = []string{ip}
	}
	return nil
}

// addIPv4 allocates an address for an update that adds IPv4 as the second family. Only a Service that loses its cluster
// IP can do that on a cluster without IPv6: validation rejects it, and its errors show the address.
func (a *allocation) addIPv4() {
	spec, before := &a.service.Spec, &a.old.Spec
	if len(before.IPFamilies) == 1 && !withoutClusterIP(a.old) && withoutClusterIP(a.service) &&
		slices.Equal(spec.IPFamilies, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}) &&
		!a.keepsDualStack() {
		ip, _ := a.address("")
		spec.ClusterIPs = append(spec.ClusterIPs, ip)
	}
}

// address returns the cluster IP of a Service, or why it can't have the requested one.
func (a *allocation) address(requested string) (ip, problem string) {
	addresses := netip.MustParsePrefix(serviceRange)
	first := addresses.Addr().Next()
	ofServer := a.service.Namespace == "default" && a.service.Name == "kubernetes" // has the first address
	used := map[string]bool{first.String(): !ofServer}
	for _, other := range a.Objects {
		for _, ip := range other.(*corev1.Service).Spec.ClusterIPs {
			used[ip] = true
		}
	}
	if requested != "" {
		parsed, err := netip.ParseAddr(requested)
		switch inRange := err == nil && addresses.Contains(parsed); {
		case a.DryRun && !inRange:
			problem = fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s",
				requested, serviceRange)
		case a.DryRun:
		case !inRange:
			problem = "the provided network does not match the current range"
		case used[requested]:
			problem = "provided IP is already allocated"
		}
		return requested, problem
	}
	if a.DryRun {
		return addresses.Addr().String(), ""
	}
	for {
		bytes := addresses.Addr().As4()
		const last = 1<<16 - 1 // the broadcast address
		n := chosenAddresses + a.Random()%(last-chosenAddresses)
		bytes[2], bytes[3] = byte(n>>8), byte(n)
		if ip := netip.AddrFrom4(bytes).String(); !used[ip] {
			return ip, ""
		}
	}
}

// nameProblem returns why the real server can't store which Service has an address.
func (a *allocation) nameProblem(ip string) string {
	path := field.NewPath("spec", "parentRef", "name")
	var errs field.ErrorList
	if a.service.Name == "" {
		errs = append(errs, field.Required(path, ""))
	}
	for _, message := range content.IsPathSegmentName(a.service.Name) {
		errs = append(errs, field.Invalid(path, a.service.Name, message))
	}
	if len(errs) == 0 {
		return ""
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "networking.k8s.io", Kind: "IPAddress"}, ip, errs).Error()
}

func (a *allocation) invalid(errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), a.service.Name, errs)
}

func isIPv6(ip string) bool {
	address, err := netip.ParseAddr(ip)
	return err == nil && address.Is6()
}
