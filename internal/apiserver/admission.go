package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Admission reviews the writes of objects, as admission plugins and webhooks do. Its functions are called in the
// goroutine of the request, and no lock is held: they may make requests. They are called once more if another request
// changes the object before it is stored. An error that is not an API status is an internal error of the server.
type Admission interface {
	// Mutate may change r.Object, except for its kind, name and namespace. It is called before the rules of the kind,
	// and for DELETE, before Validate.
	Mutate(ctx context.Context, r *Review) error
	// Validate must not change r.Object, which is what will be stored.
	Validate(ctx context.Context, r *Review) error
}

// Review is a write before it is stored.
type Review struct {
	Operation string // CREATE, UPDATE or DELETE
	// Kind and Resource are those of the request; the kind of the subresource scale is Scale.
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	// Name is empty while a name is not generated, and for the deletion of a collection. A Namespace is in the
	// namespace Name.
	Namespace, Name string
	Object          Object         // nil for DELETE
	Old             Object         // nil for CREATE; must not be changed
	Options         runtime.Object // metav1.CreateOptions, UpdateOptions or DeleteOptions, with its kind
	DryRun          bool
	UserAgent       string
	// Warn adds a warning to the response.
	Warn func(text string)
}

// SetAdmission makes the server review writes. Nil: no reviews, which is the default. Forks take it over.
func (s *Server) SetAdmission(a Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission = a
}

// Admission returns what SetAdmission has set.
func (s *Server) Admission() Admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admission
}

// review returns the review of a write by this request; nil if the server has no admission. obj is nil for a deletion,
// old for a creation. name is the one in the path of the request, or the one of a created object before one is
// generated.
func (r *request) review(obj, old Object, name string, options runtime.Object, dryRun bool) (Admission, *Review) {
	admission := r.server.Admission()
	if admission == nil {
		return nil, nil
	}
	review := &Review{
		Operation: "UPDATE", Kind: r.kind.GroupVersionKind, Resource: r.resource, Subresource: r.subresource,
		Namespace: r.namespace, Name: name, Object: obj, Old: old, Options: options, DryRun: dryRun,
		UserAgent: r.UserAgent(),
		Warn:      func(text string) { r.warn(text) },
	}
	if r.kind.namespace() {
		review.Namespace = name
	}
	switch {
	case obj == nil:
		review.Operation = "DELETE"
	case old == nil:
		review.Operation = "CREATE"
	}
	return admission, review
}

// mutate lets the admission change an object that is to be written.
func (r *request) mutate(obj, old Object, options writeOptions) error {
	if r.reviewed = r.name; r.name == "" {
		r.reviewed = obj.GetName()
	}
	admit := func() {
		if r.kind.Rules.Admit != nil && r.subresource == "" {
			r.kind.Rules.Admit(obj, old)
		}
	}
	admission, review := r.review(obj, old, r.reviewed, options.forReview(old == nil), options.dryRun)
	if admission == nil {
		admit()
		return nil
	}
	if err := r.checkNamespace(old == nil, obj.GetName()); err != nil {
		return err
	}
	r.mutated = true
	admit()
	before, version := obj.GetManagedFields(), obj.GetObjectKind().GroupVersionKind()
	if err := admission.Mutate(r.Context(), review); err != nil {
		return err
	}
	if obj.GetObjectKind().GroupVersionKind() != version { // otherwise the version of a patch is invalid
		if err := r.restoreVersion(obj); err != nil {
			return err
		}
	}
	if err := managedfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
		obj.SetManagedFields(before)
		r.warn(fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by "+
			"an outdated "+
			"mutating admission controller; please fix your requests: %v", err))
	}
	if r.kind.Rules.Default != nil {
		r.kind.Rules.Default(obj)
	}
	admit()
	return nil
}

// restoreVersion converts a custom resource to the version of the request if admission has changed its version.
func (r *request) restoreVersion(obj Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	gvk, gv := u.GroupVersionKind(), r.kind.GroupVersion()
	if gvk.GroupVersion() == gv {
		return nil
	}
	if r.serving.paths[resourcePath{gvk.Group, gvk.Version, r.kind.Resource}] == nil || gvk.Group != gv.Group {
		return fmt.Errorf("%s is unstructured and is not suitable for converting to %q", gvk, gv)
	}
	converted, err := r.kind.From(u)
	if err != nil {
		return err
	}
	u.Object = converted.(*unstructured.Unstructured).Object
	return nil
}

// permit returns the error of an admission plugin that forbids an update.
func (r *request) permit(obj, old Object) error {
	if r.kind.Rules.Permit == nil || old == nil {
		return nil
	}
	cause, err := r.kind.Rules.Permit(r.subresource, obj, old, func(name string) (Object, error) {
		nodes := schema.GroupResource{Resource: "nodes"}
		if node := r.server.find(nodes, name); node != nil {
			return node.obj, nil
		}
		if r.server.config.NodesExist || r.serving.paths[resourcePath{"", "v1", nodes.Resource}] == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("node %q not found", name)
	})
	if err == nil {
		return nil
	}
	forbidden := apierrors.NewForbidden(r.kind.groupResource(), obj.GetName(), err)
	if cause != "" {
		forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause}}
	}
	return forbidden
}

// admit lets the admission validate a write.
func (r *request) admit(obj, old Object, options writeOptions) error {
	if err := r.permit(obj, old); err != nil {
		return err
	}
	admission, review := r.review(obj, old, r.reviewed, options.forReview(old == nil), options.dryRun)
	if admission == nil {
		return nil
	}
	for _, o := range []*Object{&review.Object, &review.Old} {
		if *o != nil && r.scaled() {
			scale, err := r.scaleRecord(&record{obj: *o})
			if err != nil {
				return err
			}
			*o, review.Kind = scale.obj, r.serving.scale.GroupVersionKind
		}
	}
	if review.Name == "" {
		review.Name = review.Object.GetName() // generated
	}
	return admission.Validate(r.Context(), review)
}

// admitDeletion lets the admission review the deletion of an object.
func (r *request) admitDeletion(old Object, options *metav1.DeleteOptions) error {
	sent := options.DeepCopy()
	sent.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "DeleteOptions"}
	admission, review := r.review(nil, old, r.name, sent, len(options.DryRun) > 0)
	if admission == nil || r.subresource == evictionSubresource { // the eviction was reviewed
		return nil
	}
	if !r.kind.namespace() {
		review.Namespace = old.GetNamespace()
	}
	if err := admission.Mutate(r.Context(), review); err != nil {
		return err
	}
	return admission.Validate(r.Context(), review)
}
