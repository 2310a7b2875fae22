package controllers

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// maxEndpoints is the largest number of endpoints in an EndpointSlice.
const maxEndpoints = 100

func serviceResource() schema.GroupResource { return schema.GroupResource{Resource: "services"} }

func sliceResource() schema.GroupResource {
	return schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}
}

// services is the common part of the controllers that write the addresses of a Service's Pods.
type services struct {
	*Manager
	requests *requester
}

func (s *services) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	for _, obj := range []apiserver.Object{c.Old, c.Object} {
		switch obj := obj.(type) {
		case *corev1.Service:
			add(objectKey(obj).String(), now)
		case *corev1.Pod:
			for key, service := range s.state.objects[serviceResource()] {
				if key.Namespace == obj.Namespace && selects(service.(*corev1.Service), obj) {
					add(key.String(), now)
				}
			}
		}
	}
}

// selects reports whether a Service selects a Pod.
func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return hasAddresses(service) &&
		labels.SelectorFromValidatedSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// hasAddresses reports whether the controllers write the addresses of a Service.
func hasAddresses(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && len(service.Spec.Selector) > 0
}

// find returns a Service, or nil, and those of its Pods that have an address and are not terminal.
func (s *services) find(key string) (service *corev1.Service, pods []*corev1.Pod) {
	namespace, name, _ := strings.Cut(key, "/")
	service, _ = get[*corev1.Service](s.Manager, serviceResource(), namespace, name)
	if service == nil || !hasAddresses(service) {
		return service, nil
	}
	for _, obj := range s.list(podResource(), namespace) {
		if pod := obj.(*corev1.Pod); selects(service, pod) && !terminal(pod) && pod.Status.PodIP != "" {
			pods = append(pods, pod)
		}
	}
	return service, pods
}

// ignoreGone ignores that an object or its namespace is gone or is being deleted.
func ignoreGone(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return ignoreNotFound(err)
}

// addressOf returns the address of a Pod in an IP family, or "".
func addressOf(pod *corev1.Pod, family corev1.IPFamily) string {
	for _, podIP := range pod.Status.PodIPs {
		if ip, err := netip.ParseAddr(podIP.IP); err == nil && ip.Is4() == (family == corev1.IPv4Protocol) {
			return ip.String()
		}
	}
	return ""
}

// families returns the IP families of a Service.
func families(service *corev1.Service) []corev1.IPFamily {
	if len(service.Spec.IPFamilies) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return service.Spec.IPFamilies
}

// targetPort returns the number of a Service's port in a Pod, and false if the Pod has no port with its name.
func targetPort(pod *corev1.Pod, port *corev1.ServicePort) (number int32, ok bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == port.TargetPort.StrVal && p.Protocol == port.Protocol {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

// addressLabels returns the labels of an object with the addresses of a Service.
func addressLabels(service *corev1.Service, own map[string]string) map[string]string {
	all := maps.Clone(service.Labels)
	if all == nil {
		all = map[string]string{}
	}
	delete(all, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == "" {
		all[corev1.IsHeadlessService] = ""
	}
	maps.Copy(all, own)
	return all
}

func podReference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// hostname returns the name of a Pod in the domain of a Service, or "".
func hostname(service *corev1.Service, pod *corev1.Pod) string {
	if pod.Spec.Subdomain != service.Name {
		return ""
	}
	return pod.Spec.Hostname
}

func pointer[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// endpointSlices models the EndpointSlice controller.
type endpointSlices struct{ services }

func (e *endpointSlices) String() string { return "endpointslice-controller" }

func (e *endpointSlices) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	e.services.observe(add, now, c)
	for _, obj := range []apiserver.Object{c.Old, c.Object} {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			add(slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName], now)
		}
	}
}

func (e *endpointSlices) sync(ctx context.Context, key string) (time.Time, error) {
	service, pods := e.find(key)
	if service == nil || !hasAddresses(service) {
		return time.Time{}, nil
	}
	return time.Time{}, ignoreGone(e.write(ctx, service, pods))
}

// portGroup are the endpoints with the same ports.
type portGroup struct {
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// portGroups returns the endpoints of a Service in an IP family.
func portGroups(service *corev1.Service, pods []*corev1.Pod, family corev1.IPFamily) (groups []*portGroup) {
	byPorts := map[string]*portGroup{}
	for _, pod := range pods {
		address := addressOf(pod, family)
		if address == "" {
			continue
		}
		var ports []discoveryv1.EndpointPort
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			if number, ok := targetPort(pod, port); ok {
				ports = append(ports, discoveryv1.EndpointPort{
					Name: &port.Name, Protocol: &port.Protocol,
					Port: &number, AppProtocol: port.AppProtocol,
				})
			}
		}
		key := portsKey(ports)
		if byPorts[key] == nil {
			byPorts[key] = &portGroup{ports: ports}
			groups = append(groups, byPorts[key])
		}
		serving, terminating := ready(pod), pod.DeletionTimestamp != nil
		available := service.Spec.PublishNotReadyAddresses || serving && !terminating
		byPorts[key].endpoints = append(byPorts[key].endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &available, Serving: &serving, Terminating: &terminating},
			Hostname:   pointer(hostname(service, pod)), TargetRef: podReference(pod),
			NodeName: pointer(pod.Spec.NodeName),
		})
	}
	return groups
}

func portsKey(ports []discoveryv1.EndpointPort) string {
	text, err := json.Marshal(ports)
	if err != nil || len(ports) == 0 {
		return "" // ports can always be encoded
	}
	return string(text)
}

// write writes the EndpointSlices of a Service.
func (e *endpointSlices) write(ctx context.Context, service *corev1.Service, pods []*corev1.Pod) error {
	own := map[string]string{
		discoveryv1.LabelServiceName: service.Name,
		discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
	}
	var existing []*discoveryv1.EndpointSlice
	for _, obj := range e.list(sliceResource(), service.Namespace) {
		slice := obj.(*discoveryv1.EndpointSlice)
		if labels.SelectorFromValidatedSet(own).Matches(labels.Set(slice.Labels)) && slice.DeletionTimestamp == nil {
			existing = append(existing, slice)
		}
	}
	desired, k := slicesFor(service, pods, own), e.kind(sliceResource())
	// Slices with the same ports keep their names.
	reused := make([]*discoveryv1.EndpointSlice, len(desired))
	for _, samePorts := range []bool{true, false} {
		for i, slice := range desired {
			j := slices.IndexFunc(existing, func(old *discoveryv1.EndpointSlice) bool {
				return reused[i] == nil && metav1.IsControlledBy(old, service) &&
					old.AddressType == slice.AddressType &&
					(!samePorts || portsKey(old.Ports) == portsKey(slice.Ports))
			})
			if j >= 0 {
				reused[i] = existing[j]
				existing = slices.Delete(existing, j, j+1)
			}
		}
	}
	for i, slice := range desired {
		var err error
		switch old := reused[i]; {
		case old == nil && service.DeletionTimestamp != nil:
		case old == nil:
			err = e.requests.create(ctx, k, slice)
		case !equality.Semantic.DeepEqual(old.Endpoints, slice.Endpoints) ||
			portsKey(old.Ports) != portsKey(slice.Ports) || !maps.Equal(old.Labels, slice.Labels):
			updated := old.DeepCopy()
			updated.Labels, updated.Endpoints, updated.Ports = slice.Labels, slice.Endpoints, slice.Ports
			err = e.requests.update(ctx, k, updated)
		}
		if err != nil {
			return err
		}
	}
	for _, slice := range existing {
		if err := e.requests.delete(ctx, k, slice, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// slicesFor returns the EndpointSlices that a Service is to have: at least one of each IP family.
func slicesFor(service *corev1.Service, pods []*corev1.Pod, own map[string]string) (all []*discoveryv1.EndpointSlice) {
	for _, family := range families(service) {
		groups := portGroups(service, pods, family)
		if len(groups) == 0 {
			groups = []*portGroup{{}}
		}
		for _, group := range groups {
			for first := 0; first == 0 || first < len(group.endpoints); first += maxEndpoints {
				all = append(all, &discoveryv1.EndpointSlice{
					ObjectMeta: metav1.ObjectMeta{
						GenerateName: service.Name + "-", Namespace: service.Namespace,
						Labels: addressLabels(service, own),
						OwnerReferences: []metav1.OwnerReference{
							*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service")),
						},
					},
					AddressType: discoveryv1.AddressType(family), Ports: group.ports,
					Endpoints: group.endpoints[first:min(first+maxEndpoints, len(group.endpoints))],
				})
			}
		}
	}
	return all
}
