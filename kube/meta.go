package kube

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata makes an ObjectMeta step by step, where a struct literal is clumsy: when labels come
// from several places, or an owner is there only sometimes.
//
//	base := kube.Meta("shop", "web").App(kube.App{Name: "web", ManagedBy: "shop-operator"})
//	service, config := base.Build(), base.Named("web-config").Annotation("example.com/checksum", "7").Build()
//
// It is a value: each method returns another one and changes nothing, so that one can be the
// base of many. Nothing is checked; the API server does that.
type Metadata struct {
	meta metav1.ObjectMeta
}

// Meta begins with a namespace, which is empty for what lives in none, and a name.
func Meta(namespace, name string) Metadata {
	return Metadata{meta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// MetaOf begins with the key of an object, and nothing else of it.
func MetaOf(key Key) Metadata { return Meta(key.Namespace, key.Name) }

// Named returns the metadata with another name.
func (m Metadata) Named(name string) Metadata {
	m.meta.Name, m.meta.GenerateName = name, ""
	return m
}

// Generated returns the metadata with a prefix in place of the name: the API server makes a name
// of it when the object is created, a new one each time.
func (m Metadata) Generated(prefix string) Metadata {
	m.meta.Name, m.meta.GenerateName = "", prefix
	return m
}

// Label adds a label, or replaces it. LabelValue makes values that are accepted.
func (m Metadata) Label(name, value string) Metadata {
	return m.Labels(map[string]string{name: value})
}

// Labels adds labels, or replaces them.
func (m Metadata) Labels(labels map[string]string) Metadata {
	m.meta.Labels = merged(m.meta.Labels, labels)
	return m
}

// Annotation adds an annotation, or replaces it.
func (m Metadata) Annotation(name, value string) Metadata {
	return m.Annotations(map[string]string{name: value})
}

// Annotations adds annotations, or replaces them.
func (m Metadata) Annotations(annotations map[string]string) Metadata {
	m.meta.Annotations = merged(m.meta.Annotations, annotations)
	return m
}

// Finalizer adds finalizers, those that are not there yet.
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

// Owner adds owner references. One to an owner that is there already, by its uid, replaces it.
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

// App is what the labels say that Kubernetes recommends for all objects, and that tools show
// (app.kubernetes.io/...). What is empty is left out.
type App struct {
	Name      string // of the application: "mysql"
	Instance  string // what tells instances apart: "mysql-shop"
	Version   string // of the application: "8.4.1"
	Component string // the part within the architecture: "database"
	PartOf    string // the application that it is part of: "shop"
	ManagedBy string // the tool: "shop-operator"
}

// Labels returns the labels. Values that no label may have are made acceptable by LabelValue.
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

// App adds the recommended labels. The selectors of Deployments and Services should have the name
// and the instance only: they cannot change, or should not, when the version does.
func (m Metadata) App(app App) Metadata { return m.Labels(app.Labels()) }

// Build returns the metadata, which belongs to the caller.
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
