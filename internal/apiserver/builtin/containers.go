package builtin

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
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
	for _, c := range allContainers(&corev1.PodSpec{
		Containers:     p.spec.Containers,
		InitContainers: p.spec.InitContainers,
	}) {
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
			"Ports", "Resources", "ResizePolicy", "RestartPolicy", "RestartPolicyRules", "LivenessProbe",
			"ReadinessProbe", "StartupProbe", "Lifecycle",
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
			p.invalidFor(path.Child("containerPort"), port.ContainerPort,
				utilvalidation.IsValidPortNum(int(port.ContainerPort)))
		}
		if port.HostPort != 0 {
			p.invalidFor(path.Child("hostPort"), port.HostPort, utilvalidation.IsValidPortNum(int(port.HostPort)))
		}
		requiredOneOf(&p.problems, path.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)
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
		oneOf(&p.problems, path, *mode, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer,
			corev1.MountPropagationNone)
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if *mode == corev1.MountPropagationBidirectional && !privileged {
			p.forbidden(path, "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	if mode := mount.RecursiveReadOnly; mode != nil {
		path := path.Child("recursiveReadOnly")
		if !oneOf(&p.problems, path, *mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled,
			corev1.RecursiveReadOnlyIfPossible) ||
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
			p.invalid(name, device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral "+
				"for block mode")
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
