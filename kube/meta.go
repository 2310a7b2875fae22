package kube

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata builds an ObjectMeta step by step, for cases in which a struct literal is inconvenient: labels come from
// several sources, or an owner is optional.
//
//	base := kube.Meta("shop", "web").App(kube.App{Name: "web", ManagedBy: "shop-operator"})
//	service, config := base.Build(), base.Named("web-config").Annotation("example.com/checksum", "7").Build()
//
// It is a value: each method returns a modified copy, so that one Metadata can be the base of many. It does not
// validate; the API server does.
type Metadata struct {
	meta metav1.ObjectMeta
}

// Meta returns metadata with a name and a namespace, which is empty for cluster-scoped objects.
func Meta(namespace, name string) Metadata {
	return Metadata{meta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// MetaOf returns metadata with the name and namespace in key.
func MetaOf(key Key) Metadata { return Meta(key.Namespace, key.Name) }

// Named returns the metadata with another name.
func (m Metadata) Named(name string) Metadata {
	m.meta.Name, m.meta.GenerateName = name, ""
	return m
}

// Generated returns the metadata with a name prefix instead of a name (generateName): the API server generates a new
// name at each create.
func (m Metadata) Generated(prefix string) Metadata {
	m.meta.Name, m.meta.GenerateName = "", prefix
	return m
}

// Label adds or replaces a label. LabelValue returns valid values.
func (m Metadata) Label(name, value string) Metadata {
	return m.Labels(map[string]string{name: value})
}

// Labels adds or replaces labels.
func (m Metadata) Labels(labels map[string]string) Metadata {
	m.meta.Labels = merged(m.meta.Labels, labels)
	return m
}

// Annotation adds or replaces an annotation.
func (m Metadata) Annotation(name, value string) Metadata {
	return m.Annotations(map[string]string{name: value})
}

// Annotations adds or replaces annotations.
func (m Metadata) Annotations(annotations map[string]string) Metadata {
	m.meta.Annotations = merged(m.meta.Annotations, annotations)
	return m
}

// Finalizer adds the finalizers that are missing.
func (m Metadata) Finalizer(names ...string) Metadata {
	finalizers := slices.Clone(m.meta.Finalizers)
	for _, name := range names {
		if !slices.Contains(finalizers, name) {
			finalizers = append(finalizers, name)
		}
	}
	m.meta.Finalizers = finalizers
	return m
}

// Owner adds owner references. It replaces an existing reference with the same uid.
func (m Metadata) Owner(references ...metav1.OwnerReference) Metadata {
	owners := slices.Clone(m.meta.OwnerReferences)
	for _, reference := range references {
		at := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == reference.UID })
		if at < 0 {
			owners = append(owners, reference)
		} else {
			owners[at] = reference
		}
	}
	m.meta.OwnerReferences = owners
	return m
}

// App contains the recommended labels of Kubernetes (app.kubernetes.io/...), which tools display. Empty fields are
// omitted.
type App struct {
	Name      string // of the application: "mysql"
	Instance  string // unique per installation: "mysql-shop"
	Version   string // of the application: "8.4.1"
	Component string // the part within the architecture: "database"
	PartOf    string // the larger application: "shop"
	ManagedBy string // the tool: "shop-operator"
}

// Labels returns the labels. It applies LabelValue to invalid values.
func (a App) Labels() map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		"name": a.Name, "instance": a.Instance, "version": a.Version,
		"component": a.Component, "part-of": a.PartOf, "managed-by": a.ManagedBy,
	} {
		if value != "" {
			labels["app.kubernetes.io/"+name] = LabelValue(value)
		}
	}
	return labels
}

// App adds the recommended labels. Selectors of Deployments and Services should contain only name and instance:
// selectors cannot or should not change, but the version does.
func (m Metadata) App(app App) Metadata { return m.Labels(app.Labels()) }

// Build returns a copy of the metadata.
func (m Metadata) Build() metav1.ObjectMeta { return *m.meta.DeepCopy() }

func merged(old, more map[string]string) map[string]string {
	if len(more) == 0 {
		return old
	}
	all := make(map[string]string, len(old)+len(more))
	maps.Copy(all, old)
	maps.Copy(all, more)
	return all
}
