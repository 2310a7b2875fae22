package builtin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nameWarnings warns of names that are not DNS labels; usage is what the name is used in.
func nameWarnings(usage, name string) []string {
	messages := utilvalidation.IsDNS1123Label(name)
	if len(messages) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS "+
		"label is recommended: %v", usage, messages)}
}

// deprecatedLabels are labels of nodes and their replacements.
func deprecatedLabel(key string) string {
	return map[string]string{
		"beta.kubernetes.io/arch": `deprecated since v1.14; use "kubernetes.io/arch" instead`,
		"beta.kubernetes.io/os":   `deprecated since v1.14; use "kubernetes.io/os" instead`,
		"failure-domain.beta.kubernetes.io/region": `deprecated since v1.17; use "topology.kubernetes.io/region" ` +
			`instead`,
		"failure-domain.beta.kubernetes.io/zone": `deprecated since v1.17; use "topology.kubernetes.io/zone" ` +
			`instead`,
		"beta.kubernetes.io/instance-type": `deprecated since v1.17; use "node.kubernetes.io/instance-type" ` +
			`instead`,
		"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
		"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
		"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
	}[key]
}

// podWarner collects warnings about the specification of a Pod.
type podWarner struct {
	spec  *corev1.PodSpec
	path  *field.Path
	texts []string
}

func (w *podWarner) warn(path *field.Path, format string, args ...any) {
	w.texts = append(w.texts, path.String()+": "+fmt.Sprintf(format, args...))
}

// podWarnings returns the warnings about a Pod, or about a template in path.
func podWarnings(path *field.Path, spec *corev1.PodSpec, metadata *metav1.ObjectMeta) []string {
	w := &podWarner{spec: spec, path: path.Child("spec")}
	w.nodeLabels()
	for _, deprecated := range [][2]string{
		{
			"scheduler.alpha.kubernetes.io/critical-pod",
			`non-functional in v1.16+; use the "priorityClassName" field instead`,
		},
		{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
		{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	} {
		if _, exists := metadata.Annotations[deprecated[0]]; exists {
			w.warn(path.Child("metadata", "annotations").Key(deprecated[0]), "%s", deprecated[1])
		}
	}
	w.volumes()
	w.duplicates()
	w.containers()
	w.ports()
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		w.warn(w.path.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be "+
			"treated as 1")
	}
	w.affinity()
	return w.texts
}

const matchesNothing = "a null labelSelector results in matching no pod"

func (w *podWarner) nodeLabels() {
	for _, key := range sortedKeys(w.spec.NodeSelector) {
		if text := deprecatedLabel(key); text != "" {
			w.warn(w.path.Child("nodeSelector").Key(key), "%s", text)
		}
	}
	if a := w.spec.Affinity; a != nil && a.NodeAffinity != nil {
		path := w.path.Child("affinity", "nodeAffinity")
		term := func(term corev1.NodeSelectorTerm, path *field.Path, checkValues bool) {
			for i, r := range term.MatchExpressions {
				path := path.Child("matchExpressions").Index(i)
				if text := deprecatedLabel(r.Key); text != "" {
					w.warn(path.Child("key"), "%s is %s", r.Key, text)
				}
				for j, value := range r.Values {
					for _, message := range utilvalidation.IsValidLabelValue(value) {
						if checkValues {
							w.warn(path.Child("values").Index(j), "%s is invalid, %s", value, message)
						}
					}
				}
			}
		}
		if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for i, t := range required.NodeSelectorTerms {
				term(t, path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").
					Index(i), false)
			}
		}
		for i, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			term(t.Preference,
				path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"), true)
		}
	}
	for i, c := range w.spec.TopologySpreadConstraints {
		path := w.path.Child("topologySpreadConstraints").Index(i)
		if text := deprecatedLabel(c.TopologyKey); text != "" {
			w.warn(path.Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
		if c.LabelSelector == nil {
			w.warn(path.Child("labelSelector"), matchesNothing)
		}
	}
}

// volumes warns of plugins that do not work any more.
func (w *podWarner) volumes() {
	for i, v := range w.spec.Volumes {
		for _, removed := range []struct {
			used       bool
			name, text string
		}{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
			{v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"},
			{v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
			{v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
			{v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if removed.used {
				w.warn(w.path.Child("volumes").Index(i).Child(removed.name), "%s", removed.text)
			}
		}
	}
}

func (w *podWarner) duplicates() {
	seen := names{}
	for i, alias := range w.spec.HostAliases {
		if seen[alias.IP] {
			w.warn(w.path.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		seen[alias.IP] = true
	}
	seen = names{}
	path := w.path.Child("imagePullSecrets")
	for i, secret := range w.spec.ImagePullSecrets {
		if seen[secret.Name] {
			w.warn(path.Index(i).Child("name"), "duplicate name %q", secret.Name)
		}
		seen[secret.Name] = true
	}
	for i, secret := range w.spec.ImagePullSecrets {
		if secret.Name == "" {
			w.warn(path.Index(i).Child("name"), "invalid empty name %q", "")
		}
	}
}

func (w *podWarner) containers() {
	w.fractional(w.spec.Overhead, corev1.ResourceMemory, w.path.Child("overhead"))
	w.fractional(w.spec.Overhead, corev1.ResourceEphemeralStorage, w.path.Child("overhead"))
	for _, c := range containerPaths(w.spec, w.path) {
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			w.fractional(c.Resources.Limits, name, c.path.Child("resources", "limits"))
			w.fractional(c.Resources.Requests, name, c.path.Child("resources", "requests"))
		}
		seen := names{}
		for i, v := range c.Env {
			reference := "$(" + v.Name + ")"
			if seen[v.Name] && (v.ValueFrom != nil || v.Value == reference || !strings.Contains(v.Value, reference)) {
				w.warn(c.path.Child("env").Index(i), "hides previous definition of %q, which may be dropped when "+
					"using apply", v.Name)
			}
			seen[v.Name] = true
		}
	}
}

func (w *podWarner) fractional(list corev1.ResourceList, name corev1.ResourceName, path *field.Path) {
	if value, exists := list[name]; exists && value.MilliValue()%1000 != 0 {
		w.warn(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", value.String())
	}
}

// ports warns of ports that are defined twice.
func (w *podWarner) ports() {
	type port struct {
		corev1.ContainerPort
		path *field.Path
	}
	var all []port
	for _, c := range containerPaths(w.spec, w.path) {
		for i, p := range c.Ports {
			path := c.path.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				w.warn(path, "hostIP set without hostPort: %+v", p)
			}
			for _, other := range all {
				switch {
				case other.ContainerPort.ContainerPort != p.ContainerPort || other.Protocol != p.Protocol:
				case p.HostIP == other.HostIP && p.HostPort == other.HostPort:
					w.warn(path, "duplicate port definition with %s", other.path)
				case p.HostPort == 0 || other.HostPort == 0:
					w.warn(path, "overlapping port definition with %s", other.path)
				case p.HostPort == other.HostPort && (p.HostIP == "") != (other.HostIP == ""):
					w.warn(path, "dangerously ambiguous port definition with %s", other.path)
				}
			}
			all = append(all, port{p, path})
		}
	}
	for i, p := range all {
		first := slices.IndexFunc(all, func(other port) bool { return other.Name == p.Name })
		if p.Name != "" && first < i {
			other := all[first].path
			w.warn(p.path, "duplicate port name %q with %s, services and probes that select ports by name will use %s",
				p.Name, other, other)
		}
	}
}

func (w *podWarner) affinity() {
	terms := func(name string, hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm) {
		path := w.path.Child("affinity", name)
		for i, t := range hard {
			if t.LabelSelector == nil {
				w.warn(path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"),
					matchesNothing)
			}
		}
		for i, t := range soft {
			if t.PodAffinityTerm.LabelSelector == nil {
				w.warn(path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm",
					"labelSelector"), matchesNothing)
			}
		}
	}
	if a := w.spec.Affinity; a != nil && a.PodAffinity != nil {
		terms("podAffinity", a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := w.spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms("podAntiAffinity", a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if config := w.spec.DNSConfig; config != nil {
		for i, server := range config.Nameservers {
			w.texts = append(w.texts, utilvalidation.GetWarningsForIP(w.path.Child("dnsConfig", "nameservers").Index(i),
				server)...)
		}
	}
	for i, alias := range w.spec.HostAliases {
		w.texts = append(w.texts, utilvalidation.GetWarningsForIP(w.path.Child("hostAliases").Index(i).Child("ip"),
			alias.IP)...)
	}
}
