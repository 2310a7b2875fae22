package builtin

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allocatePorts sets node ports and the port of the health check.
func (a *allocation) allocatePorts() error {
	p := newPortAllocation(a)
	spec := &a.service.Spec
	for i := range spec.Ports {
		if takesNodePorts(a.service) && (spec.Ports[i].NodePort != 0 || allocatesNodePorts(a.service)) {
			if err := p.allocate(i); err != nil {
				return err
			}
		}
	}
	if !needsHealthCheck(a.service) || a.old != nil && needsHealthCheck(a.old) {
		return nil
	}
	if spec.HealthCheckNodePort == 0 {
		spec.HealthCheckNodePort = p.next()
	} else if err := p.reserve(spec.HealthCheckNodePort); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %d: %w",
			spec.HealthCheckNodePort, err))
	}
	return nil
}

// portAllocation chooses the node ports of one request.
type portAllocation struct {
	*allocation
	used    map[int32]bool  // by all Services
	own     []int32         // ports that the Service already has
	highest int32           // port of this request, for dry runs
	byPort  map[int32]int32 // node ports of the Service, by port: TCP and UDP share one if the Service is new
}

func newPortAllocation(a *allocation) *portAllocation {
	p := &portAllocation{allocation: a, used: map[int32]bool{}, highest: lastPort + 1, byPort: map[int32]int32{}}
	for _, other := range a.Objects {
		service := other.(*corev1.Service)
		p.used[service.Spec.HealthCheckNodePort] = true
		for _, port := range nodePorts(service) {
			p.used[port] = true
		}
	}
	if a.old != nil {
		p.own = nodePorts(a.old)
	}
	return p
}

// allocate sets the node port of the i-th port.
func (p *portAllocation) allocate(i int) error {
	ports := p.service.Spec.Ports
	port := &ports[i]
	requested, isShared := p.requested(port)
	if isShared {
		port.NodePort = requested
		return nil
	}
	switch {
	case requested == 0:
		port.NodePort = p.next()
	case slices.Contains(p.own, requested):
		port.NodePort = requested
	default:
		if err := p.reserve(requested); err != nil {
			path := field.NewPath("spec", "ports").Index(i).Child("nodePort")
			return p.invalid(field.ErrorList{field.Invalid(path, requested, err.Error())})
		}
		port.NodePort = requested
		if p.old != nil {
			p.own = append(p.own, requested)
		}
	}
	if p.old != nil && slices.ContainsFunc(ports[:i], func(other corev1.ServicePort) bool {
		return other.Protocol == port.Protocol && other.NodePort == port.NodePort
	}) {
		return fmt.Errorf("duplicate nodePort: {%s %d}", port.Protocol, port.NodePort)
	}
	if p.byPort[port.Port] == 0 {
		p.byPort[port.Port] = port.NodePort
	}
	return nil
}

// requested returns the node port that a port must have, or 0 if any will do. It is shared if an earlier port of a new
// Service with the same number has it.
func (p *portAllocation) requested(port *corev1.ServicePort) (number int32, isShared bool) {
	if p.old != nil {
		return port.NodePort, false
	}
	if shared := p.byPort[port.Port]; shared != 0 {
		if port.NodePort == 0 || port.NodePort == shared {
			return shared, true
		}
		return port.NodePort, false
	}
	for _, other := range p.service.Spec.Ports {
		if other.Port == port.Port && other.NodePort != 0 {
			return other.NodePort, false
		}
	}
	return port.NodePort, false
}

// reserve takes a requested port.
func (p *portAllocation) reserve(port int32) error {
	if !p.DryRun && (port < firstPort || port > lastPort) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", firstPort,
			lastPort)
	}
	if p.used[port] {
		return errors.New("provided port is already allocated")
	}
	p.used[port] = true
	if p.highest > lastPort || port > p.highest {
		p.highest = port
	}
	return nil
}

// next takes a free port.
func (p *portAllocation) next() int32 {
	if p.DryRun {
		p.highest++
		return p.highest
	}
	for {
		//nolint:gosec // a small number
		port := int32(firstPort + chosenPorts + p.Random()%(lastPort-firstPort-chosenPorts+1))
		if !p.used[port] {
			p.used[port] = true
			return port
		}
	}
}

// nodePorts returns the node ports of a Service.
func nodePorts(s *corev1.Service) []int32 {
	var ports []int32
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 {
			ports = append(ports, port.NodePort)
		}
	}
	return ports
}
