// Package operator is pod-terminator: it ends Pods as PodTerminators say.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Name is the name of the operator's controller, of its lease, and of what
// config/rbac.yaml brings.
const Name = "pod-terminator"

// Config says where and how the operator works.
type Config struct {
	// Namespaces are those whose PodTerminators the operator sees. Default: all.
	Namespaces []string
	// Middleware wraps the handler; the first one is the outermost. Default: none.
	Middleware []controller.Middleware[*v1alpha1.PodTerminator]
	// LeaderElector lets the operator work only while it leads; package leader has one.
	// Default nil: it works at once, and the caller sees to it that no other one does.
	LeaderElector controller.LeaderElector
	// Metrics receives measurements. Default nil: none.
	Metrics controller.Recorder
	// Logger is told of failures and of ended Pods. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// Operator ends Pods as PodTerminators say, and writes down what it did.
//
// Guarantees:
//   - A round ends no more Pods than its plan names, and each of them by its UID, also
//     when the operator crashes at any point and starts again, or when two of them work at
//     the same time: the plan is in the status before the first Pod is touched, and a
//     status is written only over the one that the round was based on.
//   - A round ends no Pod when that would leave fewer than minAlive alive, by a count of the
//     API server that is taken right before, also when several PodTerminators select the
//     same Pods. What others end between the count and the deletions, the operator learns
//     too late. Where that matters, use the eviction API with a PodDisruptionBudget; this
//     operator is here to cause trouble.
//   - When a PodTerminator is gone, so are its marks, and no more Pods are ended for it.
//
// The last two need that one operator works at a time, which is what Config.LeaderElector
// is for. Leadership that is lost, unlike leadership that is given up, leaves a gap: a
// request that was on its way may arrive when another operator works already.
type Operator struct {
	// Immutable after New.
	terminators rest.Interface
	podClient   corev1client.CoreV1Interface
	controller  *controller.Controller[*v1alpha1.PodTerminator]
	logger      *slog.Logger
}

// New makes an Operator for a cluster that was connected with v1alpha1.AddToScheme. It
// starts nothing and makes no request.
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
		logger:      cmp.Or(config.Logger, slog.Default()),
	}
	selection := informer.Selection{Namespaces: config.Namespaces}
	o.controller, err = controller.New(controller.Config[*v1alpha1.PodTerminator]{
		Name:      Name,
		Retriever: informer.RetrieveSelected[*v1alpha1.PodTerminator](cluster, selection),
		Handler:   controller.Chain(controller.HandlerFunc[*v1alpha1.PodTerminator](o.handle), config.Middleware...),
		// Two rounds at the same time could count the same Pods, and together end more than
		// the minAlive of either allows.
		Workers: 1,
		// A round makes a few hundred requests at most, one after another: see MaxVictims. A
		// minute means that the API server hardly answers; the next try goes on where this
		// one ends, and other PodTerminators have their turn in between.
		Timeout: time.Minute,
		// The default, up to 1000 s, could leave out many rounds after one long failure.
		Retry:         retry.Config{Every: retry.Policy{Max: 30 * time.Second}},
		LeaderElector: config.LeaderElector,
		Metrics:       config.Metrics,
		Logger:        config.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("new pod-terminator: %w", err)
	}
	return o, nil
}

// Run works until ctx ends, lets a round that is under way finish, and returns nil.
func (o *Operator) Run(ctx context.Context) error { return o.controller.Run(ctx) }

// Ready returns nil while the operator does what it should, or what is missing.
func (o *Operator) Ready() error { return o.controller.Ready() }
