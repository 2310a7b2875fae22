// Package watched creates a set of children and its connections to a controller from one list of kinds: for each kind
// an informer of the children and the source that enqueues the owner when a child changes, and for all kinds the client
// that reads from the informers and the set (package owned). If these were created by hand, a kind that is missing in
// one of them would cause problems that are detected late: requests for idle objects, a child that is never deleted, or
// undetected drift.
//
//	children, err := watched.New(watched.Config{
//		Client: client.Config{Cluster: cluster, FieldOwner: "webapp-operator"},
//		Kinds:  []watched.Kind{watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service]()},
//	})
//
// The handler calls children.Set.Apply, and controller.Config.Sources gets children.Sources. Programs that need other
// parts create them with informer.New, client.New, owned.New and source.OwnedBy.
package watched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// Config describes the children. New does not keep or change the caller's copy.
type Config struct {
	// Client configures the client, which reads from the children's informers and then from its Informers: list here
	// informers of other objects that handlers read. Cluster is required.
	Client client.Config
	// Set configures the set. New sets Client, which must be nil, and adds Kinds: list here only kinds of earlier
	// versions of the program, which are found by requests. Name defaults to Client.FieldOwner. If two sets of one name
	// have controllers of the same kind in one process, the second controller's Run returns an error.
	Set owned.Config
	// Kinds are the kinds of the children. Required.
	Kinds []Kind
	// Namespaces are the watched namespaces: all namespaces of owners, and those of Set.Namespaces. Children
	// elsewhere are requested from the API server in each run. A Role in each namespace is enough; a cluster-scoped
	// kind then needs its own Retriever (Of) and a ClusterRole. Default: those of Cluster.SetNamespaces, otherwise all,
	// which needs a ClusterRole.
	Namespaces []string
}

// Kind is one kind of children: see Of and Existing.
type Kind struct {
	open func(Config) (informer.Any, error)
}

// Of returns the kind of T, or that of the Retriever that a configure function sets. Its informer selects the objects
// with the set's label and keeps what the client's field owner has applied (informer.Config.KeepAppliedBy), so that
// children in their desired state need no request after a restart. It uses the logger of the client's Cluster. Its name
// contains the kind and the set ("Deployment of webapp"), because names distinguish informers in metrics.
//
// Each configure function may change the config of the informer before it is created.
func Of[T kube.Object](configure ...func(*informer.Config[T])) Kind {
	return Kind{open: func(c Config) (informer.Any, error) {
		config := informer.Config[T]{
			Retriever: informer.RetrieveSelected[T](c.Client.Cluster, kube.Selection{
				Namespaces: c.Namespaces, LabelSelector: owned.LabelSet + "=" + c.Set.Name,
			}),
			KeepAppliedBy: c.Client.FieldOwner, Logger: c.Client.Cluster.Logger(),
		}
		for _, change := range configure {
			change(&config)
		}
		if config.Name == "" && config.Retriever != nil { // otherwise informer.New returns the error
			config.Name = config.Retriever.Describe().GroupVersionKind.Kind + " of " + c.Set.Name
		}
		return informer.Shared(config)
	}}
}

// Existing returns the kind of an informer that the program creates, because other code reads from it too. The
// informer must keep whole objects and cover all children. Set its Config.KeepAppliedBy to the client's field owner;
// otherwise each child is applied once after a restart.
func Existing[T kube.Object](objects *informer.Informer[T]) Kind {
	return Kind{open: func(Config) (informer.Any, error) {
		if objects == nil {
			return nil, fmt.Errorf("the informer of %T is nil", *new(T))
		}
		return objects, nil
	}}
}

// Children is the result of New.
type Children struct {
	// Set applies and deletes the children.
	Set *owned.Set
	// Client reads from their informers. Set sees writes of this client, and of clients that its With returns,
	// immediately; writes of other clients when the informers receive them.
	Client *client.Client
	// Sources enqueue the owner when a child is added, changed or deleted, in any namespace: for
	// controller.Config.Sources. The controller runs their informers. A handler's first request without them is logged
	// as a warning.
	Sources []controller.Source

	reported atomic.Bool // whether the sources were given to a controller
}

// New creates a set of children and its parts. It starts nothing and makes no request. The error lists all mistakes
// in config; those that only owned.New can detect are missing if there are others.
func New(config Config) (*Children, error) {
	config.Set.Name = cmp.Or(config.Set.Name, config.Client.FieldOwner)
	children, err := build(config)
	if err != nil {
		return nil, fmt.Errorf("new watched set of owned objects: %w", err)
	}
	return children, nil
}

func build(config Config) (*Children, error) {
	c, errClient := client.New(config.Client)
	if errClient == nil {
		config.Client = c.Config() // with its default FieldOwner, which the informers need
	}
	informers, err := config.open()
	if err := errors.Join(err, errClient); err != nil {
		return nil, err
	}
	children := &Children{}
	kinds := make([]schema.GroupVersionKind, 0, len(informers))
	readers := make([]client.Informer, 0, len(informers))
	for _, objects := range informers {
		kinds = append(kinds, objects.Kind())
		readers = append(readers, objects)
		children.Sources = append(children.Sources,
			ownerSource{objects, config.Set.Name, config.Client.Cluster, children, &atomic.Bool{}})
	}
	config.Client.Informers = append(readers, config.Client.Informers...)
	config.Client.Interceptors = append(slices.Clip(config.Client.Interceptors), children.reportSources)
	if children.Client, err = client.New(config.Client); err != nil {
		return nil, err
	}
	config.Set.Client = children.Client
	config.Set.Kinds = append(kinds, config.Set.Kinds...)
	if children.Set, err = owned.New(config.Set); err != nil {
		return nil, err
	}
	return children, nil
}

// open validates the config, except what client.New and owned.New validate, and creates the informers.
func (c Config) open() ([]informer.Any, error) {
	var mistakes usercode.Mistakes
	nameProblems := validation.IsValidLabelValue(c.Set.Name)
	switch {
	case c.Set.Name == "":
		mistakes.Addf("Set.Name is required, unless Client.FieldOwner is set: the children's informers select by it")
	case len(nameProblems) > 0:
		mistakes.Addf("Set.Name (default: Client.FieldOwner) is %q, which is not a label value: %s", c.Set.Name,
			strings.Join(nameProblems, "; "))
	}
	if c.Set.Client != nil {
		mistakes.Addf("Set.Client must be nil: New sets it to the client made from Client")
	}
	if len(c.Kinds) == 0 {
		mistakes.Addf("at least one of Kinds is required, such as watched.Of[*corev1.ConfigMap]()")
	}
	watched, limits := c.Namespaces, "Namespaces"
	if len(watched) == 0 {
		watched, limits = c.Client.Cluster.Namespaces(), "the namespaces of the Cluster"
	}
	for _, namespace := range c.Set.Namespaces {
		isLimit := namespace == metav1.NamespaceAll && len(c.Namespaces) == 0 // all that the Cluster is limited to
		if len(watched) > 0 && !isLimit && !slices.Contains(watched, namespace) {
			mistakes.Addf("Set.Namespaces has %q, which is not among %s: children there would not be watched",
				namespace, limits)
		}
	}
	if c.Client.Cluster == nil || c.Set.Name == "" || len(nameProblems) > 0 {
		return nil, mistakes.Err() // the informers would only repeat these errors
	}
	informers := make([]informer.Any, 0, len(c.Kinds))
	for i, kind := range c.Kinds {
		objects, err := kind.informer(c)
		if err != nil {
			mistakes.Addf("kind %d: %w", i, err)
			continue
		}
		same := func(other informer.Any) bool { return other.Kind().GroupKind() == objects.Kind().GroupKind() }
		if slices.ContainsFunc(informers, same) {
			mistakes.Addf("kind %d: %s is listed twice", i, objects.Kind().GroupKind())
		}
		informers = append(informers, objects)
	}
	return informers, mistakes.Err()
}

func (k Kind) informer(c Config) (informer.Any, error) {
	if k.open == nil {
		return nil, errors.New("the zero Kind is invalid: use watched.Of or watched.Existing")
	}
	objects, err := k.open(c)
	if err != nil {
		return nil, err
	}
	if _, whole := cache.Of(objects).NewObject(); !whole {
		return nil, fmt.Errorf("informer %s keeps only metadata: the set needs whole objects", objects.Name())
	}
	return objects, nil
}
