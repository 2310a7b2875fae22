// Package watched wires a set of children to a controller from one list of their kinds. What
// package owned needs beside the desired children is three things for each kind, and the kind in
// a fourth: an informer of the children, the client that reads from it, the kinds in which the set
// looks for what is no longer desired, and the source that wakes the owner when a child changes.
// A kind that is forgotten in one of them shows late: as a request at rest, as a child that is
// never deleted, or as drift that nobody hears of. New makes all of them.
//
//	children, err := watched.New(watched.Config{
//		Client: client.Config{Cluster: cluster, FieldOwner: "webapp-operator"},
//		Kinds:  []watched.Kind{watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service]()},
//	})
//
// Nothing here is more than those parts: whoever needs one of them otherwise makes them by hand.
package watched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/source"
)

// Config says what children there are. It is taken by value: New neither keeps nor changes the
// caller's.
type Config struct {
	// Client makes the requests, and reads from the children's informers first, which New puts
	// before its Informers: name here those of other objects that handlers read. Cluster and
	// FieldOwner are required.
	Client client.Config
	// Set is the set's. New fills in Client, which must be nil, and puts Kinds before the set's
	// own: name here the kinds that only earlier versions of the program made, which are looked
	// for by requests. Name defaults to Client.FieldOwner, Logger to Client.Logger.
	Set owned.Config
	// Kinds are the kinds of the children. Required.
	Kinds []Kind
	// Namespaces are those in which children are watched: all in which owners live, and those
	// of Set.Namespaces. What is elsewhere is asked of the API server, at every run. Each needs
	// no more than a Role in it. A kind that lives in no namespace needs a Retriever of its own then
	// (Of), and a ClusterRole. Default: all, which needs a ClusterRole.
	Namespaces []string
	// Metrics receives the informers' measurements. Default nil: none.
	Metrics informer.Recorder
}

// Kind is one kind of children: see Of and Existing.
type Kind struct {
	open func(Config) (informer.Any, error)
}

// Of is the kind that T is registered for, or that of the Retriever which a configure sets. Its
// informer keeps the objects with the set's label only, and what the client's field owner has applied
// to each (informer.Config.KeepAppliedBy): so a restart makes no request for children that are as
// desired. It logs where the client does, and is named after both ("Deployment of webapp"), because metrics tell informers by their names. Each
// configure may change its config before it is made.
func Of[T kube.Object](configure ...func(*informer.Config[T])) Kind {
	return Kind{open: func(c Config) (informer.Any, error) {
		config := informer.Config[T]{
			Retriever: informer.RetrieveSelected[T](c.Client.Cluster, informer.Selection{
				Namespaces: c.Namespaces, LabelSelector: owned.LabelSet + "=" + c.Set.Name,
			}),
			KeepAppliedBy: c.Client.FieldOwner, Metrics: c.Metrics, Logger: c.Client.Logger,
		}
		for _, change := range configure {
			change(&config)
		}
		if config.Name == "" && config.Retriever != nil { // without one informer.New says what is missing
			config.Name = config.Retriever.Describe().GroupVersionKind.Kind + " of " + c.Set.Name
		}
		return informer.New(config)
	}}
}

// Existing is the kind of the objects of an informer that there is already, because more than the set
// reads from it. It must keep whole objects, and show every child. Give it the client's field owner as
// informer.Config.KeepAppliedBy, or each child is applied once after a restart.
func Existing[T kube.Object](objects *informer.Informer[T]) Kind {
	return Kind{open: func(Config) (informer.Any, error) {
		if objects == nil {
			return nil, fmt.Errorf("the informer of %T is nil", *new(T))
		}
		return objects, nil
	}}
}

// Children is what New made.
type Children struct {
	// Set applies and deletes them.
	Set *owned.Set
	// Client reads from their informers. What handlers write with it, or with what its With makes,
	// Set knows at once; of another client's writes it hears from the informers.
	Client *client.Client
	// Sources enqueue the owner of each child that comes, changes or goes, in whatever namespace
	// it is: for controller.Config.Sources. The controller runs their informers.
	Sources []controller.Source
}

// New makes a set of children, and what belongs to it. It starts nothing and makes no request.
// The error names every mistake in config; what only owned.New can see in Set, it names when the
// rest is right.
func New(config Config) (*Children, error) {
	config.Set.Name = cmp.Or(config.Set.Name, config.Client.FieldOwner)
	config.Set.Logger = cmp.Or(config.Set.Logger, config.Client.Logger)
	children, err := build(config)
	if err != nil {
		return nil, fmt.Errorf("make a watched set of owned objects: %w", err)
	}
	return children, nil
}

func build(config Config) (*Children, error) {
	informers, err := config.open()
	if err != nil && config.Client.Cluster != nil {
		_, errClient := client.New(config.Client)
		err = errors.Join(err, errClient)
	}
	if err != nil {
		return nil, err
	}
	children := &Children{}
	kinds := make([]schema.GroupVersionKind, 0, len(informers))
	readers := make([]client.Informer, 0, len(informers))
	for _, objects := range informers {
		kinds = append(kinds, objects.Kind())
		readers = append(readers, objects)
		children.Sources = append(children.Sources,
			source.OwnedBy(objects, owned.OwnerKeys[*metav1.PartialObjectMetadata](config.Set.Name)))
	}
	config.Client.Informers = append(readers, config.Client.Informers...)
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

// open checks what New is given, but for what client.New and owned.New see in their own configs,
// and makes the informers.
func (c Config) open() ([]informer.Any, error) {
	var errs []error
	if c.Client.Cluster == nil {
		errs = append(errs, errors.New("Client.Cluster is required: make one with kube.Connect"))
	}
	if c.Client.FieldOwner == "" {
		errs = append(errs, errors.New("Client.FieldOwner is required: the children's fields belong to it"))
	}
	nameProblems := validation.IsValidLabelValue(c.Set.Name)
	switch {
	case c.Set.Name == "":
		errs = append(errs, errors.New("Set.Name is required, unless Client.FieldOwner is set: the children's informers select by it"))
	case len(nameProblems) > 0:
		errs = append(errs, fmt.Errorf("Set.Name (default: Client.FieldOwner) is %q, which is not a label value: %s", c.Set.Name, strings.Join(nameProblems, "; ")))
	}
	if c.Set.Client != nil {
		errs = append(errs, errors.New("Set.Client must be nil: the set gets one that reads from the children's informers, made from Client"))
	}
	if len(c.Kinds) == 0 {
		errs = append(errs, errors.New("at least one of Kinds is required, such as watched.Of[*corev1.ConfigMap]()"))
	}
	errs = append(errs, c.checkNamespaces())
	if c.Client.Cluster == nil || c.Set.Name == "" || len(nameProblems) > 0 {
		return nil, errors.Join(errs...) // what the informers would say of it helps nobody
	}
	informers := make([]informer.Any, 0, len(c.Kinds))
	for i, kind := range c.Kinds {
		objects, err := kind.informer(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("kind %d: %w", i, err))
			continue
		}
		same := func(other informer.Any) bool { return other.Kind().GroupKind() == objects.Kind().GroupKind() }
		if slices.ContainsFunc(informers, same) {
			errs = append(errs, fmt.Errorf("kind %d: %s is there twice", i, objects.Kind().GroupKind()))
		}
		informers = append(informers, objects)
	}
	return informers, errors.Join(errs...)
}

// checkNamespaces refuses children where nobody would hear of them.
func (c Config) checkNamespaces() error {
	var errs []error
	for _, namespace := range c.Set.Namespaces {
		if len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, namespace) {
			errs = append(errs, fmt.Errorf("Set.Namespaces has %q, which is not among Namespaces: children there would not be watched", namespace))
		}
	}
	return errors.Join(errs...)
}

func (k Kind) informer(c Config) (informer.Any, error) {
	if k.open == nil {
		return nil, errors.New("the zero Kind is of no use: use watched.Of or watched.Existing")
	}
	objects, err := k.open(c)
	if err != nil {
		return nil, err
	}
	if _, whole := objects.Untyped().NewObject(); !whole {
		return nil, fmt.Errorf("informer %s keeps metadata only: the set compares whole children", objects.Name())
	}
	return objects, nil
}
