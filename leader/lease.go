package leader

import (
	"context"
	"math"
	"net"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// leaseClient makes the requests for one Lease. It does not use client-go's typed client, which links the types of all
// of k8s.io/api.
type leaseClient struct {
	rest            rest.Interface
	namespace, name string
	// connections are nil if the Lease's requests share connections with other requests.
	connections *connrotation.ConnectionTracker
}

// newLeaseClient returns a client with its own connections, so that disconnect can close them. If the rest.Config has a
// Transport, its connections cannot be tracked, and the client uses the cluster's HTTP client.
func newLeaseClient(cluster *kube.Cluster, namespace, name string) (*leaseClient, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := cluster.RESTConfig()
	config.APIPath, config.GroupVersion = "/apis", &coordinationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c := &leaseClient{namespace: namespace, name: name}
	var err error
	if config.Transport != nil {
		c.rest, err = rest.RESTClientForConfigAndClient(config, cluster.HTTPClient())
		return c, err
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial, c.connections = dialer.DialContext, dialer.ConnectionTracker
	c.rest, err = rest.RESTClientFor(config)
	return c, err
}

func (c *leaseClient) get(ctx context.Context) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.rest.Get().Name(c.name))
}

func (c *leaseClient) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.rest.Post().Body(lease))
}

// createDryRun asks the API server whether it would create a Lease.
func (c *leaseClient) createDryRun(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := c.do(ctx, c.rest.Post().Param("dryRun", metav1.DryRunAll).Body(lease))
	return err
}

// update replaces the Lease if it still has lease's resourceVersion.
func (c *leaseClient) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.rest.Put().Name(c.name).Body(lease))
}

func (c *leaseClient) do(ctx context.Context, request *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := request.Namespace(c.namespace).Resource("leases").Do(leadership.ForElection(ctx)).Into(lease)
	return lease, err
}

// disconnect closes the client's own connections. The next request opens a new one.
func (c *leaseClient) disconnect() {
	if c.connections != nil {
		c.connections.CloseAll()
	}
}

// holderOf returns the holder of a Lease, or "" if it has no holder.
func holderOf(spec *coordinationv1.LeaseSpec) string {
	if spec.HolderIdentity == nil {
		return ""
	}
	return *spec.HolderIdentity
}

// durationOf returns how long a Lease lasts after a renewal.
func durationOf(spec *coordinationv1.LeaseSpec) time.Duration {
	if spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*spec.LeaseDurationSeconds) * time.Second
}

// setHolder writes a holder into a Lease, as client-go's elector does. renewal keeps the time of acquisition.
func setHolder(spec *coordinationv1.LeaseSpec, holder string, duration time.Duration, renewal bool) {
	now := metav1.NowMicro()
	seconds := int32(duration / time.Second)
	spec.HolderIdentity, spec.LeaseDurationSeconds, spec.RenewTime = &holder, &seconds, &now
	if !renewal {
		spec.AcquireTime = &now
	}
}

// countTransition increments leaseTransitions, which the API limits to 32 bits.
func countTransition(spec *coordinationv1.LeaseSpec) {
	transitions := int32(0)
	if spec.LeaseTransitions != nil {
		transitions = *spec.LeaseTransitions
	}
	if transitions < math.MaxInt32 {
		transitions++
	}
	spec.LeaseTransitions = &transitions
}

// stamp identifies a write among the writes of one identity. The times are in microseconds, as in a Lease.
type stamp struct{ acquired, renewed int64 }

func stampOf(spec *coordinationv1.LeaseSpec) stamp {
	return stamp{microseconds(spec.AcquireTime), microseconds(spec.RenewTime)}
}

func microseconds(t *metav1.MicroTime) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}
