//nolint:staticcheck // Endpoints are deprecated, and clusters have them
package controllers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func endpointsResource() schema.GroupResource { return schema.GroupResource{Resource: "endpoints"} }

// endpoints models the Endpoints controller.
type endpoints struct{ services }

func (e *endpoints) String() string { return "endpoint-controller" }

func (e *endpoints) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	e.services.observe(add, now, c)
	if deleted, ok := c.Old.(*corev1.Endpoints); ok && c.Object == nil {
		add(objectKey(deleted).String(), now)
	}
}

func (e *endpoints) sync(ctx context.Context, key string) (time.Time, error) {
	service, pods := e.find(key)
	namespace, name, _ := strings.Cut(key, "/")
	existing, k := get[*corev1.Endpoints](e.Manager, endpointsResource(), namespace, name)
	if service == nil && existing != nil {
		return time.Time{}, ignoreNotFound(e.requests.delete(ctx, k, existing, metav1.DeleteOptions{}))
	}
	if service == nil || !hasAddresses(service) {
		return time.Time{}, nil
	}
	updated := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if existing != nil {
		updated = existing.DeepCopy()
	}
	updated.Subsets = subsets(service, pods)
	updated.Labels = addressLabels(service,
		map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"})
	switch {
	case existing == nil:
		return time.Time{}, ignoreGone(e.requests.create(ctx, k, updated))
	case equality.Semantic.DeepEqual(existing, updated):
		return time.Time{}, nil
	}
	return time.Time{}, ignoreNotFound(e.requests.update(ctx, k, updated))
}

// subsets returns the addresses of a Service: those with the same ports are one subset, and ports with the same
// addresses.
func subsets(service *corev1.Service, pods []*corev1.Pod) (all []corev1.EndpointSubset) {
	if len(service.Spec.Ports) == 0 {
		return appendSubset(nil, service, pods, nil)
	}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		byNumber := map[int32][]*corev1.Pod{}
		for _, pod := range pods {
			if number, ok := targetPort(pod, port); ok {
				byNumber[number] = append(byNumber[number], pod)
			}
		}
		for _, number := range slices.Sorted(maps.Keys(byNumber)) {
			all = appendSubset(all, service, byNumber[number], []corev1.EndpointPort{
				{Name: port.Name, Port: number, Protocol: port.Protocol, AppProtocol: port.AppProtocol},
			})
		}
	}
	return all
}

// appendSubset adds ports of Pods to the subset with the same addresses.
func appendSubset(
	all []corev1.EndpointSubset, service *corev1.Service, pods []*corev1.Pod, ports []corev1.EndpointPort,
) []corev1.EndpointSubset {
	subset := corev1.EndpointSubset{Ports: ports}
	for _, pod := range pods {
		address := corev1.EndpointAddress{
			IP: addressOf(pod, families(service)[0]), Hostname: hostname(service, pod), NodeName: &pod.Spec.NodeName,
			TargetRef: podReference(pod),
		}
		switch {
		case address.IP == "" || pod.DeletionTimestamp != nil && !service.Spec.PublishNotReadyAddresses:
		case ready(pod) || service.Spec.PublishNotReadyAddresses:
			subset.Addresses = append(subset.Addresses, address)
		default:
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	if len(subset.Addresses)+len(subset.NotReadyAddresses) == 0 {
		return all
	}
	byIP := func(a, b corev1.EndpointAddress) int { return strings.Compare(a.IP, b.IP) }
	slices.SortFunc(subset.Addresses, byIP)
	slices.SortFunc(subset.NotReadyAddresses, byIP)
	for i := range all {
		if equality.Semantic.DeepEqual(all[i].Addresses, subset.Addresses) &&
			equality.Semantic.DeepEqual(all[i].NotReadyAddresses, subset.NotReadyAddresses) {
			all[i].Ports = append(all[i].Ports, ports...)
			return all
		}
	}
	return append(all, subset)
}
