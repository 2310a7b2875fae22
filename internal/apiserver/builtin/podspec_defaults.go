package builtin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// setDefault sets a field that has the zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPointer sets a pointer that is nil.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// defaultTemplate completes the template of a Pod.
func defaultTemplate(template *corev1.PodTemplateSpec) {
	dropInitAnnotations(template.Annotations)
	defaultPodSpec(&template.Spec)
}

// dropInitAnnotations removes the annotations that were init containers before Kubernetes 1.8.
func dropInitAnnotations(annotations map[string]string) {
	for _, name := range []string{"alpha", "beta"} {
		delete(annotations, "pod."+name+".kubernetes.io/init-containers")
		delete(annotations, "pod."+name+".kubernetes.io/init-container-statuses")
	}
}

// defaultPodSpec completes the specification of a Pod, also in a template.
func defaultPodSpec(spec *corev1.PodSpec) {
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for _, c := range allContainers(spec) {
		defaultContainer(c)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

// allContainers returns the containers of a Pod, including init and ephemeral ones.
func allContainers(spec *corev1.PodSpec) []*corev1.Container {
	all := make([]*corev1.Container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		all = append(all, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		all = append(all, &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		all = append(all, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

func defaultVolume(v *corev1.VolumeSource) {
	if ptr.AllPtrFieldsNil(v) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		setPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		setPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		setPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		setPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		setPointer(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			source := &v.Projected.Sources[i]
			if source.DownwardAPI != nil {
				defaultDownwardFiles(source.DownwardAPI.Items)
			}
			if source.ServiceAccountToken != nil {
				setPointer(&source.ServiceAccountToken.ExpirationSeconds, 60*60)
			}
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		defaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.Image != nil {
		setDefault(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.ISCSI != nil {
		setDefault(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		setDefault(&v.RBD.RBDPool, "rbd")
		setDefault(&v.RBD.RadosUser, "admin")
		setDefault(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		setPointer(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setPointer(&v.AzureDisk.FSType, "ext4")
		setPointer(&v.AzureDisk.ReadOnly, false)
		setPointer(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
	}
	if v.ScaleIO != nil {
		setDefault(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		setDefault(&ref.APIVersion, "v1")
	}
}

func defaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	setPointer(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(spec.Resources.Limits)
	roundUp(spec.Resources.Requests)
}

func defaultContainer(c *corev1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				setPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

func defaultProbe(probe *corev1.Probe) {
	if probe == nil {
		return
	}
	setDefault(&probe.TimeoutSeconds, 1)
	setDefault(&probe.PeriodSeconds, 10)
	setDefault(&probe.SuccessThreshold, 1)
	setDefault(&probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
	if probe.GRPC != nil {
		setPointer(&probe.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		setDefault(&get.Path, "/")
		setDefault(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// roundUp rounds quantities up to thousandths.
func roundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// pullPolicy returns the default policy: images with the tag latest, or without a tag and a digest, are always pulled.
// Invalid names have no tag.
func pullPolicy(image string) corev1.PullPolicy {
	name, digest, _ := strings.Cut(image, "@")
	last := strings.LastIndex(name, "/") + 1
	base, tag, _ := strings.Cut(name[last:], ":")
	components := strings.Split(name[:last]+base, "/")
	if isDomain(components[0]) && len(components) > 1 {
		components = components[1:]
	}
	if (tag == "latest" || tag == "" && digest == "") && !slices.ContainsFunc(components, invalidComponent) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// isDomain reports whether the first component of the name of an image is the host of a registry.
func isDomain(component string) bool {
	return component == "localhost" || strings.ContainsAny(component, ".:") || strings.ToLower(component) != component
}

// invalidComponent reports whether a component is not words of lower case letters and digits, separated by a dot, one
// or two underscores, or dashes.
func invalidComponent(component string) bool {
	words := strings.FieldsFunc(component, func(c rune) bool { return strings.ContainsRune("._-", c) })
	for i, word := range words {
		if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return true
		}
		var found bool
		if component, found = strings.CutPrefix(component, word); !found {
			return true
		}
		separator := component[:len(component)-len(strings.TrimLeft(component, "._-"))]
		last := i == len(words)-1
		if last != (separator == "") || !last && !slices.Contains([]string{".", "_", "__"}, separator) &&
			strings.Trim(separator, "-") != "" {
			return true
		}
		component = component[len(separator):]
	}
	return len(words) == 0
}

// defaultPod completes what only a Pod has, not a template.
func defaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	dropInitAnnotations(pod.Annotations)
	for _, c := range allContainers(&corev1.PodSpec{InitContainers: spec.InitContainers, Containers: spec.Containers}) {
		if c.Resources.Limits != nil && c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		for name, limit := range c.Resources.Limits {
			if _, exists := c.Resources.Requests[name]; !exists {
				c.Resources.Requests[name] = limit.DeepCopy()
			}
		}
		for i := range c.Ports {
			if spec.HostNetwork {
				setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	defaultPodResources(spec)
	setPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	defaultPodSpec(spec)
	if status := &pod.Status; status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP) {
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	} else if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
}
