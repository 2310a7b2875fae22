package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *podProblems) podSecurity(c *corev1.PodSecurityContext, path *field.Path) {
	if c.FSGroup != nil {
		p.invalidFor(path.Child("fsGroup"), *c.FSGroup, utilvalidation.IsValidGroupID(*c.FSGroup))
	}
	p.userAndGroup(c.RunAsUser, c.RunAsGroup, path)
	for i, group := range c.SupplementalGroups {
		p.invalidFor(path.Child("supplementalGroups").Index(i), group, utilvalidation.IsValidGroupID(group))
	}
	if share := p.spec.ShareProcessNamespace; share != nil && *share && p.spec.HostPID {
		p.invalid(path.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot "+
			"both be enabled")
	}
	seen := names{}
	for i, sysctl := range c.Sysctls {
		if p.nonEmpty(path.Child("sysctls").Index(i).Child("name"), sysctl.Name) {
			seen.unique(&p.problems, path.Child("sysctls").Index(i).Child("name"), sysctl.Name)
		}
	}
	optionalOneOf(&p.problems, path.Child("fsGroupChangePolicy"), c.FSGroupChangePolicy, corev1.FSGroupChangeAlways,
		corev1.FSGroupChangeOnRootMismatch)
	p.seccomp(c.SeccompProfile, path.Child("seccompProfile"))
	p.appArmor(c.AppArmorProfile, path.Child("appArmorProfile"))
	optionalOneOf(&p.problems, path.Child("supplementalGroupsPolicy"), c.SupplementalGroupsPolicy,
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	if p.anyPolicy {
		optionalOneOf(&p.problems, path.Child("seLinuxChangePolicy"), c.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	} else {
		optionalOneOf(&p.problems, path.Child("seLinuxChangePolicy"), c.SELinuxChangePolicy,
			corev1.SELinuxChangePolicyRecursive)
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
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
			corev1.SeccompProfileTypeUnconfined)
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
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault,
			corev1.AppArmorProfileTypeUnconfined)
	}
}

func (p *podProblems) containerSecurity(c *corev1.SecurityContext, path *field.Path) {
	p.userAndGroup(c.RunAsUser, c.RunAsGroup, path)
	if mount := c.ProcMount; mount != nil {
		oneOf(&p.problems, path.Child("procMount"), *mount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *mount == corev1.UnmaskedProcMount && p.hostUsers() {
			p.invalid(path.Child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	p.seccomp(c.SeccompProfile, path.Child("seccompProfile"))
	if escalation := c.AllowPrivilegeEscalation; escalation != nil && !*escalation {
		if c.Privileged != nil && *c.Privileged {
			p.invalid(path, internal(c), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		for i := 0; c.Capabilities != nil && i < len(c.Capabilities.Add); i++ {
			if c.Capabilities.Add[i] == "CAP_SYS_ADMIN" {
				p.invalid(path, internal(c), "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "+
					"CAP_SYS_ADMIN")
			}
		}
	}
	p.appArmor(c.AppArmorProfile, path.Child("appArmorProfile"))
}
