package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const bindingSubresource = "binding"

// bound reports whether the kind has the subresources binding and eviction.
func (k *Kind) bound() bool { return k.groupResource() == schema.GroupResource{Resource: "pods"} }

// bind assigns a Pod to a node, as a scheduler demands.
func (r *request) bind() (*response, error) {
	decoded, part, options, err := r.created()
	if err != nil {
		return nil, err
	}
	binding := decoded.(*corev1.Binding)
	if binding.Name != r.name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if err := validateBinding(binding); err != nil {
		return nil, err
	}
	if err := part.admit(binding, nil, options); err != nil {
		return nil, err
	}
	for {
		err := r.tryBind(binding, options.dryRun)
		switch {
		case errors.Is(err, errChanged):
			continue
		case err != nil:
			return nil, err
		}
		return r.status(http.StatusCreated, nil)
	}
}

// validateBinding returns an error that is not for the client: in the real server, an invalid binding is an internal
// error.
func validateBinding(binding *corev1.Binding) error {
	var errs field.ErrorList
	target := field.NewPath("target")
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	if binding.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}

// tryBind is one attempt of bind. The changed Pod is not validated. Error: errChanged.
func (r *request) tryBind(binding *corev1.Binding, dryRun bool) error {
	stored := r.find(r.namespace, r.name)
	if stored == nil {
		return apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	pod := stored.obj.DeepCopyObject().(*corev1.Pod)
	if uid := binding.UID; uid != "" && uid != pod.UID {
		return r.storedPrecondition(r.namespace, r.name, precondition("UID", uid, pod.UID), dryRun)
	}
	if version := binding.ResourceVersion; version != "" && version != pod.ResourceVersion {
		return r.storedPrecondition(r.namespace, r.name, precondition("ResourceVersion", version, pod.ResourceVersion),
			dryRun)
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name,
			fmt.Errorf(format, args...))
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	pod.Labels = mergeMaps(pod.Labels, binding.Labels)
	pod.Annotations = mergeMaps(pod.Annotations, binding.Annotations)
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	_, err := r.commit(pod, stored, dryRun)
	return err
}

// postedKinds returns the kinds of the subresources binding, eviction and token.
func postedKinds() []*Kind {
	return []*Kind{
		Builtin[corev1.Binding](corev1.SchemeGroupVersion.WithKind("Binding"), bindingSubresource, corev1.AddToScheme),
		Builtin[policyv1.Eviction](policyv1.SchemeGroupVersion.WithKind("Eviction"), evictionSubresource,
			policyv1.AddToScheme),
		newTokenKind(),
	}
}

// created decodes the body of a request that creates a review, or an object in a subresource, and lets the admission
// change it. part is the request with the kind of the body.
func (r *request) created() (obj Object, part *request, options writeOptions, err error) {
	copied := *r
	part = &copied
	if r.subresource != "" {
		part.kind = r.serving.posted[slices.IndexFunc(r.serving.posted, func(k *Kind) bool {
			return k.Resource == r.subresource
		})]
	}
	body, err := r.body()
	if err != nil {
		return nil, nil, options, err
	}
	if options, err = r.createOptions(); err != nil {
		return nil, nil, options, err
	}
	media, err := contentType(r.Header)
	if err != nil {
		return nil, nil, options, err
	}
	if obj, err = part.decodeBody(body, media, options); err != nil {
		return nil, nil, options, err
	}
	if r.subresource == evictionSubresource || r.subresource == "" { // the others can demand the uid of their object
		wipeSystemFields(obj)
	}
	if err := r.setNamespace(obj); err != nil {
		return nil, nil, options, err
	}
	r.removeDuplicateOwners(obj, false)
	if err := r.checkNamespace(true, r.name); err != nil {
		return nil, nil, options, err
	}
	obj = part.manage(nil, obj, options)
	return obj, part, options, part.mutate(obj, nil, options)
}

// mergeMaps adds the values of source to target, and returns target.
func mergeMaps(target, source map[string]string) map[string]string {
	if target == nil {
		return maps.Clone(source)
	}
	maps.Copy(target, source)
	return target
}
