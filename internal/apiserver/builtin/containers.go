package builtin

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *podProblems) containers(path *field.Path) {
	if len(p.spec.Containers) == 0 {
		p.required(path, "")
		return
	}
	seen := names{}
	for i := range p.spec.Containers {
		c, path := &p.spec.Containers[i], path.Index(i)
		p.container(c, path)
		seen.unique(&p.problems, path.Child("name"), c.Name)
		p.lifecycleAndProbes(c, path)
		p.restartRules(c, path)
	}
	p.hostPorts(p.spec.Containers, path)
}

func (p *podProblems) initContainers(path *field.Path) {
	seen := names{}
	for _, c := range p.spec.Containers {
		seen[c.Name] = true
	}
	for i := range p.spec.InitContainers {
		c, at := &p.spec.InitContainers[i], path.Index(i)
		p.container(c, at)
		if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
			p.required(at.Child("restartPolicy"), needsPolicy)
		} else {
			p.restartRules(c, at)
		}
		if c.Name != "" || seen[""] {
			seen.unique(&p.problems, at.Child("name"), c.Name)
		}
		p.hostPorts(p.spec.InitContainers[i:i+1], path)
		if isSidecar(c) {
			p.lifecycleAndProbes(c, at)
			continue
		}
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"lifecycle", c.Lifecycle != nil},
			{"livenessProbe", c.LivenessProbe != nil},
			{"readinessProbe", c.ReadinessProbe != nil},
			{"startupProbe", c.StartupProbe != nil},
		} {
			if f.set {
				p.forbidden(at.Child(f.name), "may not be set for init containers without restartPolicy=Always")
			}
		}
		for j, policy := range c.ResizePolicy {
			if policy.RestartPolicy == corev1.RestartContainer {
				p.invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), policy.RestartPolicy,
					"must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
	}
}

// isSidecar reports whether an init container runs as long as the Pod.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (p *podProblems) ephemeralContainers(path *field.Path) {
	seen, targets := names{}, names{}
	for _, c := range allContainers(&corev1.PodSpec{Containers: p.spec.Containers, InitContainers: p.spec.InitContainers}) {
		seen[c.Name], targets[c.Name] = true, true
	}
	for i := range p.spec.EphemeralContainers {
		e, path := &p.spec.EphemeralContainers[i], path.Index(i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		p.container(c, path)
		p.imageWithoutSpaces(c.Image, path)
		seen.unique(&p.problems, path.Child("name"), e.Name)
		if e.TargetContainerName != "" && !targets[e.TargetContainerName] {
			p.add(field.NotFound(path.Child("targetContainerName"), e.TargetContainerName))
		}
		const cannotBeSet = "cannot be set for an Ephemeral Container"
		for _, name := range []string{
			"Ports", "Resources", "ResizePolicy", "RestartPolicy", "RestartPolicyRules", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle",
		} {
			if !reflect.ValueOf(c).Elem().FieldByName(name).IsZero() {
				p.forbidden(path.Child(lowerFirst(name)), cannotBeSet)
			}
		}
		for j, mount := range e.VolumeMounts {
			if mount.SubPath != "" {
				p.forbidden(path.Child("volumeMounts").Index(j).Child("subPath"), cannotBeSet)
			}
			if mount.SubPathExpr != "" {
				p.forbidden(path.Child("volumeMounts").Index(j).Child("subPathExpr"), cannotBeSet)
			}
		}
	}
}

func lowerFirst(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToLower(first)) + name[size:]
}

// container checks what all kinds of containers have in common.
func (p *podProblems) container(c *corev1.Container, path *field.Path) {
	p.requiredLabel(path.Child("name"), c.Name)
	p.nonEmpty(path.Child("image"), c.Image)
	requiredOneOf(&p.problems, path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	p.ports(c.Ports, path.Child("ports"))
	p.env(c.Env, path.Child("env"))
	p.envFrom(c.EnvFrom, path.Child("envFrom"))
	p.mounts(c, path.Child("volumeMounts"))
	p.devices(c, path.Child("volumeDevices"))
	p.imagePullPolicy(path.Child("imagePullPolicy"), c.ImagePullPolicy)
	p.resources(&c.Resources, path.Child("resources"))
	p.resizePolicy(c.ResizePolicy, path.Child("resizePolicy"))
	if c.SecurityContext != nil {
		p.containerSecurity(c.SecurityContext, path.Child("securityContext"))
	}
}

func (p *podProblems) imagePullPolicy(path *field.Path, policy corev1.PullPolicy) {
	requiredOneOf(&p.problems, path, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func (p *problems) imageWithoutSpaces(image string, path *field.Path) {
	if strings.TrimSpace(image) != image {
		p.invalid(path.Child("image"), image, "must not have leading or trailing whitespace")
	}
}

func (p *podProblems) ports(ports []corev1.ContainerPort, path *field.Path) {
	seen := names{}
	for i, port := range ports {
		path := path.Index(i)
		if port.Name != "" {
			messages := utilvalidation.IsValidPortName(port.Name)
			p.invalidFor(path.Child("name"), port.Name, messages)
			if len(messages) == 0 {
				seen.unique(&p.problems, path.Child("name"), port.Name)
			}
		}
		if port.ContainerPort == 0 {
			p.required(path.Child("containerPort"), "")
		} else {
			p.invalidFor(path.Child("containerPort"), port.ContainerPort, utilvalidation.IsValidPortNum(int(port.ContainerPort)))
		}
		if port.HostPort != 0 {
			p.invalidFor(path.Child("hostPort"), port.HostPort, utilvalidation.IsValidPortNum(int(port.HostPort)))
		}
		requiredOneOf(&p.problems, path.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

// hostPorts finds ports of the host that are used twice.
func (p *podProblems) hostPorts(containers []corev1.Container, path *field.Path) {
	seen := names{}
	for i, c := range containers {
		for j, port := range c.Ports {
			if port.HostPort != 0 {
				seen.unique(&p.problems, path.Index(i).Child("ports").Index(j).Child("hostPort"),
					fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort))
			}
		}
	}
}

func (p *podProblems) env(vars []corev1.EnvVar, path *field.Path) {
	for i, v := range vars {
		path := path.Index(i)
		if p.nonEmpty(path.Child("name"), v.Name) {
			p.invalidFor(path.Child("name"), v.Name, utilvalidation.IsRelaxedEnvVarName(v.Name))
		}
		if v.ValueFrom != nil {
			p.valueFrom(v, path.Child("valueFrom"))
		}
	}
}

func (p *podProblems) valueFrom(v corev1.EnvVar, path *field.Path) {
	from, sources := v.ValueFrom, 0
	if ref := from.FieldRef; ref != nil {
		sources++
		p.fieldRef(ref, path.Child("fieldRef"), "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	}
	if ref := from.ResourceFieldRef; ref != nil {
		sources++
		p.resourceFieldRef(ref, path.Child("resourceFieldRef"), false)
	}
	keyRef := func(name, key string, path *field.Path) {
		sources++
		p.invalidFor(path.Child("name"), name, validation.NameIsDNSSubdomain(name, false))
		if p.nonEmpty(path.Child("key"), key) {
			p.invalidFor(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))
		}
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		keyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := from.SecretKeyRef; ref != nil {
		keyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	if ref := from.FileKeyRef; ref != nil {
		sources++
		path := path.Child("fileKeyRef")
		if p.nonEmpty(path.Child("key"), ref.Key) {
			p.invalidFor(path.Child("key"), ref.Key, utilvalidation.IsRelaxedEnvVarName(ref.Key))
		}
		p.requiredLabel(path.Child("volumeName"), ref.VolumeName)
		if p.nonEmpty(path.Child("path"), ref.Path) {
			p.noBacksteps(path.Child("path"), ref.Path)
		}
	}
	switch {
	case sources == 0:
		p.invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Value != "":
		p.invalid(path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		p.invalid(path, "", "may not have more than one field specified at a time")
	}
}

// fileKeyVolumes checks the volumes of variables whose values are in files.
func (p *podProblems) fileKeyVolumes(path *field.Path) {
	volumes := map[string]*corev1.VolumeSource{}
	for i := range p.spec.Volumes {
		volumes[p.spec.Volumes[i].Name] = &p.spec.Volumes[i].VolumeSource
	}
	for _, c := range containerPaths(p.spec, path) {
		for i, v := range c.Env {
			if v.ValueFrom == nil || v.ValueFrom.FileKeyRef == nil {
				continue
			}
			name, path := v.ValueFrom.FileKeyRef.VolumeName, c.path.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			if source := volumes[name]; source == nil {
				p.add(field.NotFound(path, name))
			} else if source.EmptyDir == nil {
				p.invalid(path, name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

// fieldRef checks a reference to a field of the Pod; valid are the fields besides single labels and annotations.
func (p *podProblems) fieldRef(ref *corev1.ObjectFieldSelector, path *field.Path, valid ...string) {
	if !p.nonEmpty(path.Child("apiVersion"), ref.APIVersion) || !p.nonEmpty(path.Child("fieldPath"), ref.FieldPath) {
		return
	}
	name := ref.FieldPath
	problem := ""
	base, key, subscripted := cutSubscript(name)
	switch {
	case ref.APIVersion != "v1":
		problem = "unsupported pod version: " + ref.APIVersion
	case subscripted && base != "metadata.annotations" && base != "metadata.labels":
		problem = "field label does not support subscript: " + name
	case !subscripted && name == "spec.host":
		name = "spec.nodeName"
	case !subscripted && !knownField(name):
		problem = "field label not supported: " + name
	}
	switch {
	case problem != "":
		p.invalid(path.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: "+problem)
	case base == "metadata.annotations" && subscripted:
		key = strings.ToLower(key)
		p.invalidFor(path, key, utilvalidation.IsQualifiedName(key))
	case subscripted:
		p.invalidFor(path, key, utilvalidation.IsQualifiedName(key))
	default:
		oneOf(&p.problems, path.Child("fieldPath"), name, valid...)
	}
}

// cutSubscript cuts metadata.labels['key'] into the field and the key.
func cutSubscript(path string) (base, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	base, key, ok = strings.Cut(rest, "['")
	if !ok || base == "" {
		return path, "", false
	}
	return base, key, true
}

// knownField reports whether the downward API knows a field, even if it cannot be used everywhere.
func knownField(name string) bool {
	switch name {
	case "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.restartPolicy",
		"spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
		return true
	}
	return false
}

func (p *podProblems) resourceFieldRef(ref *corev1.ResourceFieldSelector, path *field.Path, inVolume bool) {
	switch {
	case inVolume && ref.ContainerName == "":
		p.required(path.Child("containerName"), "")
	case ref.Resource == "":
		p.required(path.Child("resource"), "")
	case !strings.HasPrefix(ref.Resource, "requests.hugepages-") && !strings.HasPrefix(ref.Resource, "limits.hugepages-"):
		oneOf(&p.problems, path.Child("resource"), ref.Resource, "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	if ref.Divisor.IsZero() {
		return
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	valid, described := "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei", name
	switch {
	case name == "cpu":
		valid = "1m and 1"
	case name == "ephemeral-storage":
		described = "local ephemeral storage"
	case strings.HasPrefix(name, "hugepages-"):
		described = "hugepages"
	case name != "memory":
		return
	}
	for _, divisor := range strings.FieldsFunc(valid, func(c rune) bool { return c == ',' || c == ' ' }) {
		if ref.Divisor.String() == divisor {
			return
		}
	}
	p.invalid(path.Child("divisor"), ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", valid, described))
}

func (p *podProblems) envFrom(sources []corev1.EnvFromSource, path *field.Path) {
	for i, from := range sources {
		at := path.Index(i)
		if from.Prefix != "" {
			p.invalidFor(at.Child("prefix"), from.Prefix, utilvalidation.IsRelaxedEnvVarName(from.Prefix))
		}
		count := 0
		reference := func(name string, path *field.Path) {
			count++
			if p.nonEmpty(path.Child("name"), name) {
				p.invalidFor(path.Child("name"), name, validation.NameIsDNSSubdomain(name, true))
			}
		}
		if from.ConfigMapRef != nil {
			reference(from.ConfigMapRef.Name, at.Child("configMapRef"))
		}
		if from.SecretRef != nil {
			reference(from.SecretRef.Name, at.Child("secretRef"))
		}
		switch { // the real server names the list here, not the element
		case count == 0:
			p.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
		case count > 1:
			p.invalid(path, "", "may not have more than one field specified at a time")
		}
	}
}

func (p *podProblems) mounts(c *corev1.Container, path *field.Path) {
	seen, devices, devicePaths := names{}, names{}, names{}
	for _, device := range c.VolumeDevices {
		devices[device.Name], devicePaths[device.DevicePath] = true, true
	}
	for i, mount := range c.VolumeMounts {
		at := path.Index(i)
		p.nonEmpty(at.Child("name"), mount.Name)
		if _, exists := p.volumes[mount.Name]; !exists {
			p.add(field.NotFound(at.Child("name"), mount.Name))
		}
		p.nonEmpty(at.Child("mountPath"), mount.MountPath)
		if seen[mount.MountPath] {
			p.invalid(at.Child("mountPath"), mount.MountPath, "must be unique")
		}
		seen[mount.MountPath] = true
		if devices[mount.Name] {
			p.invalid(at.Child("name"), mount.Name, "must not already exist in volumeDevices")
		}
		if devicePaths[mount.MountPath] {
			p.invalid(at.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
		}
		if mount.SubPath != "" {
			p.descendingPath(path.Child("subPath"), mount.SubPath)
		}
		if mount.SubPathExpr != "" {
			if mount.SubPath != "" {
				p.invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
			}
			p.descendingPath(path.Child("subPathExpr"), mount.SubPathExpr)
		}
		p.propagation(c, mount, path)
	}
}

func (p *podProblems) propagation(c *corev1.Container, mount corev1.VolumeMount, path *field.Path) {
	if mode := mount.MountPropagation; mode != nil {
		path := path.Child("mountPropagation")
		oneOf(&p.problems, path, *mode, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if *mode == corev1.MountPropagationBidirectional && !privileged {
			p.forbidden(path, "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	if mode := mount.RecursiveReadOnly; mode != nil {
		path := path.Child("recursiveReadOnly")
		if !oneOf(&p.problems, path, *mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible) ||
			*mode == corev1.RecursiveReadOnlyDisabled {
			return
		}
		if !mount.ReadOnly {
			p.forbidden(path, "may only be specified when readOnly is true")
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
			p.forbidden(path, "may only be specified when mountPropagation is None or not specified")
		}
	}
}

func (p *podProblems) devices(c *corev1.Container, path *field.Path) {
	paths, used, mounts, mountPaths := names{}, names{}, names{}, names{}
	for _, mount := range c.VolumeMounts {
		mounts[mount.Name], mountPaths[mount.MountPath] = true, true
	}
	for i, device := range c.VolumeDevices {
		name, devicePath := path.Index(i).Child("name"), path.Index(i).Child("devicePath")
		p.nonEmpty(name, device.Name)
		if used[device.Name] {
			p.invalid(name, device.Name, "must be unique")
		}
		volume, exists := p.volumes[device.Name]
		switch {
		case !exists:
			p.add(field.NotFound(name, device.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			p.invalid(name, device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		p.nonEmpty(devicePath, device.DevicePath)
		if paths[device.DevicePath] {
			p.invalid(devicePath, device.DevicePath, "must be unique")
		}
		if hasBacksteps(device.DevicePath) {
			p.invalid(devicePath, device.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths[device.DevicePath] = true
		}
		if mounts[device.Name] {
			p.invalid(name, device.Name, "must not already exist in volumeMounts")
		}
		if mountPaths[device.DevicePath] {
			p.invalid(devicePath, device.DevicePath, "must not already exist as a path in volumeMounts")
		}
		used[device.Name] = device.Name != ""
	}
}

// resources checks the resources of a container.
func (p *podProblems) resources(r *corev1.ResourceRequirements, path *field.Path) {
	hugePages, cpuOrMemory := false, false
	check := func(name corev1.ResourceName, quantity resource.Quantity, path *field.Path) {
		p.resourceName(name, path)
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
				p.invalid(path, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name))
			}
		}
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	limits, requests := path.Child("limits"), path.Child("requests")
	for _, name := range sortedKeys(r.Limits) {
		check(name, r.Limits[name], limits.Key(string(name)))
	}
	for _, name := range sortedKeys(r.Requests) {
		quantity := r.Requests[name]
		check(name, quantity, requests.Key(string(name)))
		overcommit := isNative(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		limit, exists := r.Limits[name]
		switch compared := quantity.Cmp(limit); {
		case !exists && !overcommit:
			p.required(limits, "Limit must be set for non overcommitable resources")
		case exists && compared != 0 && !overcommit:
			p.invalid(requests, quantity.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case exists && compared > 0:
			p.invalid(requests, quantity.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
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
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
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
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
		corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
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

const needsPolicy = "must specify restartPolicy when restart rules are used"

// restartRules checks the restart policy of a single container.
func (p *podProblems) restartRules(c *corev1.Container, path *field.Path) {
	rules := c.RestartPolicyRules
	if c.RestartPolicy != nil {
		oneOf(&p.problems, path.Child("restartPolicy"), *c.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
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
				p.handler(corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}, h.Sleep, path.Child("lifecycle", h.name))
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
	if grace := p.spec.TerminationGracePeriodSeconds; first("sleep", sleep != nil) && grace != nil && (sleep.Seconds < 0 || sleep.Seconds > *grace) {
		p.invalid(path.Child("sleep"), sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
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
				p.invalid(path, internal(c), "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
	p.appArmor(c.AppArmorProfile, path.Child("appArmorProfile"))
}
