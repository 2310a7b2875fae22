package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
		p.invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` "+
			"or `fileKeyRef`")
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
			name, path := v.ValueFrom.FileKeyRef.VolumeName, c.path.Child("env").Index(i).Child("valueFrom",
				"fileKeyRef", "volumeName")
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
	case "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.restartPolicy",
		"spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP", "status.hostIPs",
		"status.podIP", "status.podIPs":
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
	case !strings.HasPrefix(ref.Resource, "requests.hugepages-") &&
		!strings.HasPrefix(ref.Resource, "limits.hugepages-"):
		oneOf(&p.problems, path.Child("resource"), ref.Resource, "limits.cpu", "limits.ephemeral-storage",
			"limits.memory",
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
	p.invalid(path.Child("divisor"), ref.Resource,
		fmt.Sprintf("only divisor's values %s are supported with the %s resource", valid, described))
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
