// Package operator is pod-terminator: it ends Pods as PodTerminators specify.
package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Name is the name of the operator's controller, of its lease, and of the objects in config/rbac.yaml.
const Name = "pod-terminator"

// Config configures the operator.
type Config struct {
	// Middleware wraps the handler; the first one is the outermost. Default: none.
	Middleware []controller.Middleware[*v1alpha1.PodTerminator]
	// LeaderElector restricts the work to the leader; package leader has one. Default nil: the operator works at once,
	// and the caller must ensure that no other operator does.
	LeaderElector controller.LeaderElector
	// Metrics receives measurements. Default nil: none.
	Metrics controller.Recorder
}

// Operator ends Pods as PodTerminators specify, and records its actions.
//
// Guarantees:
//   - A round ends only the Pods in its plan, each by its UID, also if the operator crashes at any point and starts
//     again, or if two operators work at the same time: the plan is in the status before the first Pod is changed, and
//     a status is only written over the one that the round was based on.
//   - A round must not leave fewer than minAlive Pods alive, by a count of the API server directly before the round,
//     also if several PodTerminators select the same Pods. The operator does not see Pods that other clients end
//     between the count and the deletions. If that matters, use the eviction API with a PodDisruptionBudget.
//   - When a PodTerminator is deleted, its marks are removed, and no more Pods are ended for it.
//
// The last two require that one operator works at a time: use Config.LeaderElector. If leadership is lost instead of
// released, there is a gap: a request that was in flight may arrive while another operator works.
type Operator struct {
	// Immutable after New.
	terminators rest.Interface
	podClient   corev1client.CoreV1Interface
	controller  *controller.Controller[*v1alpha1.PodTerminator]
}

// New returns an Operator for a cluster that was connected with v1alpha1.AddToScheme. It starts nothing and makes no
// request.
func New(cluster *kube.Cluster, config Config) (*Operator, error) {
	if cluster == nil {
		return nil, errors.New("new pod-terminator: the cluster is nil: make one with kube.Connect")
	}
	terminators, err := cluster.RESTClient(v1alpha1.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("new pod-terminator: %w", err)
	}
	podClient, err := corev1client.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, fmt.Errorf("new pod-terminator: make a client for Pods: %w", err)
	}
	o := &Operator{
		terminators: terminators,
		podClient:   podClient,
	}
	o.controller, err = controller.New(controller.Config[*v1alpha1.PodTerminator]{
		Name:    Name,
		Cluster: cluster,
		Handler: controller.Chain(o.handle, config.Middleware...),
		// Two concurrent rounds could count the same Pods, and together violate minAlive.
		Workers: 1,
		// A round makes at most a few hundred sequential requests: see MaxVictims. If it takes a minute, the API server
		// hardly responds. The retry continues the round, and other PodTerminators are handled in between.
		Timeout: time.Minute,
		// The default maximum of 1000 s could skip many rounds after a long failure.
		Retry:         retry.Config{Every: retry.Policy{Max: 30 * time.Second}},
		LeaderElector: config.LeaderElector,
		Metrics:       config.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("new pod-terminator: %w", err)
	}
	return o, nil
}

// Run works until ctx ends, lets a running round finish, and returns nil.
func (o *Operator) Run(ctx context.Context) error { return o.controller.Run(ctx) }

// Ready returns nil if the operator works, otherwise the reason why it does not.
func (o *Operator) Ready() error { return o.controller.Ready() }
