package apiserver

import (
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const bindingSubresource = "binding"

// bound reports whether the kind has the subresources binding and eviction.
func (k *Kind) bound() bool { return k.groupResource() == schema.GroupResource{Resource: "pods"} }

// bind assigns a Pod to a node, as a scheduler demands.
func (r *request) bind() (*response, error) {
	decoded, options, err := r.created(Builtin[corev1.Binding](corev1.SchemeGroupVersion.WithKind("Binding"), "bindings", corev1.AddToScheme))
	if err != nil {
		return nil, err
	}
	binding := decoded.(*corev1.Binding)
	_, err = r.replace(binding.UID, options, func(current Object) (Object, error) {
		pod := current.DeepCopyObject().(*corev1.Pod)
		resource := schema.GroupResource{Resource: "pods/binding"}
		switch {
		case pod.DeletionTimestamp != nil:
			return nil, apierrors.NewConflict(resource, pod.Name, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name))
		case pod.Spec.NodeName != "":
			return nil, apierrors.NewConflict(resource, pod.Name, fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
		}
		pod.Spec.NodeName = binding.Target.Name
		pod.Labels = mergeMaps(pod.Labels, binding.Labels)
		pod.Annotations = mergeMaps(pod.Annotations, binding.Annotations)
		setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
		return pod, nil
	})
	if err != nil {
		return nil, err
	}
	return r.status(http.StatusCreated, nil)
}

// created decodes the body of a request that creates an object of a kind in a subresource.
func (r *request) created(kind *Kind) (Object, writeOptions, error) {
	body, err := r.body()
	if err != nil {
		return nil, writeOptions{}, err
	}
	options, err := r.createOptions()
	if err != nil {
		return nil, writeOptions{}, err
	}
	media, err := contentType(r.Header)
	if err != nil {
		return nil, writeOptions{}, err
	}
	ofBody := *r
	ofBody.kind = kind
	obj, err := ofBody.decodeBody(body, media, options)
	return obj, options, err
}

// mergeMaps adds the values of source to target, and returns target.
func mergeMaps(target, source map[string]string) map[string]string {
	if target == nil {
		return maps.Clone(source)
	}
	maps.Copy(target, source)
	return target
}
