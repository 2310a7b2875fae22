package owned

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// defaultForceRemoveAfter is the default of Config.ForceRemoveFinalizers' times.
const defaultForceRemoveAfter = 10 * time.Minute

// defaultOwnerGrace is the default of Former.OwnerGrace.
const defaultOwnerGrace = time.Minute

// Config configures a Set. New does not keep or change the caller's copy.
//
// # Requests
//
// If the client has informers that cover the kinds (those of package watched do, and have only objects with LabelSet),
// a run without changes makes no request. Without informers, it makes one list of metadata for each of Config.Kinds,
// and the requests of client.Apply for each child. To create a child takes one request, and one more GET for kinds that
// are not built into Kubernetes (client.IfAbsent).
//
// # Permissions
//
// A Set needs get, list, create, patch and delete for each of Config.Kinds in the namespaces of children, and get for
// the kind of the owner. If the API server has the admission plugin OwnerReferencesPermissionEnforcement, it also needs
// update for the finalizers subresource of the owner.
type Config struct {
	// Client makes the requests. Its FieldOwner becomes the field manager of the children's fields. Reads use its
	// Informers where they cover the objects. Required.
	Client *client.Client
	// Name identifies the set in the cluster: a label value, "webapp". No other controller may use it: if two Sets of a
	// process with one name and Cluster manage the children of an owner in turn, calls return an error. If it changes,
	// the existing children are not found anymore. Required.
	Name string
	// Kinds are all kinds of children, including those of earlier versions of the program: the Set never finds, and
	// never deletes, children of other kinds. The version of a kind does not matter. Kinds that the cluster does not
	// serve have no children; Apply checks again after 10 min or when such a child is desired, Delete in each call.
	// Required.
	Kinds []schema.GroupVersionKind
	// Namespaces are the namespaces of children in addition to the owner's, including those of earlier versions of the
	// program. metav1.NamespaceAll means all. Default: only the owner's namespace; all for cluster-scoped owners.
	Namespaces []string

	// ReportConflicts does not change a child with desired fields that another field manager owns. The conflict is the
	// child's error. Default false: Apply overwrites the fields and takes their ownership, as is usual for controllers.
	ReportConflicts bool
	// AdoptOrphans takes over existing objects with the name of a child that have no owner: no owner reference and no
	// labels of another set. This includes children of an earlier owner of the same name. Default false: they are
	// reported (ForeignError) and not changed.
	AdoptOrphans bool
	// Prune determines when children that are not desired anymore are deleted. Default PruneLast.
	Prune Prune
	// Propagation determines what happens to the dependents of a deleted child. With
	// metav1.DeletePropagationForeground the child is gone only after them. metav1.DeletePropagationOrphan is an error,
	// because it would leave the dependents of pruned children behind: see Child.Propagation. Default
	// metav1.DeletePropagationBackground.
	Propagation metav1.DeletionPropagation
	// Former determines what happens to what earlier versions of the program and former owners left behind.
	Former Former
	// ForceRemoveFinalizers are the exact names of other controllers' finalizers that are removed from children, and
	// how long after the child's deletionTimestamp; 0 means 10 min. The cleanup by these controllers is skipped:
	// volumes, load balancers and the like may be left behind forever. Each removal is logged as a warning, reported,
	// and an Event. Default: none; finalizers of other controllers are never removed.
	ForceRemoveFinalizers map[string]time.Duration

	// Events writes Events about owners: ChildRecreating and FinalizersForceRemoved. It is an event.Recorder or any
	// other value with this method, which must not block. Default: the event.Recorder of the Client's Cluster, or none.
	Events interface {
		Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
	}
}

// Prune determines when children that are not desired anymore are deleted.
type Prune int

// The values of Prune.
const (
	// PruneLast deletes them when all desired children of all waves are applied. It is the default.
	PruneLast Prune = iota
	// PruneFirst deletes them before desired children are applied, for old children that occupy a resource that the new
	// ones need, such as a port or quota. Of several waves only the highest is deleted before; lower waves follow in
	// later runs, and the desired children do not wait for them.
	PruneFirst
	// PruneNever only reports them.
	PruneNever
)

// Former configures how a Set treats what was there before: fields and children that earlier versions of the program,
// or another tool, wrote, and children of former owners. Its zero value is the default.
type Former struct {
	// Managers are the field managers with which earlier versions of the program, or another tool, wrote children by
	// Update (see kubectl get --show-managed-fields). Their fields that are not desired are removed, once for each
	// child, which is noted in an annotation; Plan shows them. Default: none; such fields stay, and Apply reports those
	// of the program's own manager names.
	Managers []string
	// Children also finds children without the labels of the set: objects that have the owner as their controller and
	// were written by one of Managers. Those that are not desired are pruned. It is a label selector for these objects,
	// such as "app.kubernetes.io/managed-by=webapp"; "!" + LabelSet selects all objects without a set. They are listed
	// from the API server once per owner and process, and again if the owner was not handled for a day. If an owner has
	// several sets, each must select only its own children. Default "": none.
	Children string
	// OwnerGrace is the time for the garbage collector to delete a child of a former owner: an earlier object of the
	// owner's kind and name. It starts with the creation of the owner, or of the child if that is younger. After it,
	// Apply deletes the child by its uid and creates it again, if it has the labels and the annotation of a child of
	// this set and no other owner. Until then it has a ForeignError. Default 1 min.
	OwnerGrace time.Duration
}

// Set manages the children of owners. It keeps no state of children between calls, and is safe for concurrent use.
// There should be only one call at a time for one owner, which controllers ensure.
//
// Guarantees:
//   - Apply changes only children of owner. An existing object with the name of a child has a ForeignError if it
//     has another controller or the labels of another set, or if it has no owner and Config.AdoptOrphans is false. A
//     child is created only if the API server has no object with its name at that time (client.IfAbsent).
//   - A changed child is in the state from which Apply determined that it is one: the resourceVersion is a
//     precondition.
//   - Apply gives an owner reference only to a new child, or after reading owner, which must not be terminating. So
//     kubectl delete --cascade=orphan keeps the children also during a run.
//   - A deleted child has the labels of the owner's children, its own key in an annotation and, where an owner
//     reference is possible, the owner's uid as its controller. The deletion has the uid and the resourceVersion of
//     that state as preconditions.
//   - An outdated list of children deletes nothing. Before the first deletion Apply reads owner from the API server.
//     Its uid and its generation (for kinds without one: its resourceVersion) must be those of the argument. This
//     does not detect changes of labels and annotations of kinds with a generation, nor changes of other inputs
//     from which the list was made.
//   - If owner is deleted, or was created again with its name, Apply creates no child that the garbage collector
//     would not delete.
//   - An error of one child does not stop the other children of its wave.
type Set struct {
	config    Config                                        // immutable after New
	dry       *client.Client                                // for plans
	notServed apiobject.Recent[schema.GroupKind, time.Time] // since when the cluster does not serve a kind
	searched  apiobject.Recent[types.UID, bool]             // owners without former children; see Former.Children
	deletions apiobject.Recent[ownedChild, deletion]        // of children; see checkLoop
	creations apiobject.Recent[ownedChild, int]             // of children with a TTL; see reportRepetition
}

// New returns a Set. It makes no request. The error lists all mistakes in config.
func New(config Config) (*Set, error) {
	config.Kinds = slices.Clone(config.Kinds)
	config.Namespaces = slices.Clone(config.Namespaces)
	config.Former.Managers = slices.Sorted(slices.Values(config.Former.Managers))
	config.ForceRemoveFinalizers = maps.Clone(config.ForceRemoveFinalizers)
	config.Propagation = cmp.Or(config.Propagation, metav1.DeletePropagationBackground)
	config.Former.OwnerGrace = cmp.Or(config.Former.OwnerGrace, defaultOwnerGrace)
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new set of owned objects: %w", err)
	}
	dry, err := config.Client.With(func(c *client.Config) { c.DryRun = true })
	if err != nil {
		return nil, fmt.Errorf("new set of owned objects: %w", err)
	}
	if usercode.IsNil(config.Events) {
		config.Events = nil
	}
	s := &Set{config: config, dry: dry}
	s.require()
	s.notServed.Keep, s.searched.Keep, s.deletions.Keep = notServedFor, minSearchedFor, loopWindow
	s.creations.Keep = minSearchedFor
	return s, nil
}

// require records what the Set does with children: in the namespaces of owners, and in Namespaces.
func (s *Set) require() {
	c := s.config
	named := slices.DeleteFunc(slices.Clone(c.Namespaces), func(name string) bool {
		return name == metav1.NamespaceAll
	})
	for _, kind := range c.Kinds {
		permission := apiobject.Permission{Kind: kind, Verbs: []string{"get", "list", "create", "patch", "delete"}}
		elsewhere := permission
		if elsewhere.Namespaces = named; len(named) > 0 {
			apiobject.ObserversOf(c.Client.Cluster()).Require(elsewhere)
		}
		permission.Part = s
		apiobject.ObserversOf(c.Client.Cluster()).Require(permission)
	}
}

func (c Config) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Client == nil, "Client is required: client.New makes one")
	if c.Name == "" {
		mistakes.Addf("Name is required, to find children again")
	} else if problems := validation.IsValidLabelValue(c.Name); len(problems) > 0 {
		mistakes.Addf("Name is %q, which is not a label value: %s", c.Name, strings.Join(problems, "; "))
	}
	mistakes.AddIf(len(c.Kinds) == 0, "Kinds is required: all kinds of children, including those of earlier versions "+
		"of the program")
	seen := map[schema.GroupKind]bool{}
	for i, kind := range c.Kinds {
		switch {
		case kind.Kind == "" || kind.Version == "":
			mistakes.Addf("Kinds[%d] is %q: a version and a kind are required", i, kind)
		case seen[kind.GroupKind()]:
			mistakes.Addf("Kinds[%d] repeats %s: list one version of each kind", i, kind.GroupKind())
		}
		seen[kind.GroupKind()] = true
	}
	c.validatePolicies(&mistakes)
	return mistakes.Err()
}

func (c Config) validatePolicies(mistakes *usercode.Mistakes) {
	mistakes.AddIf(c.Prune < PruneLast || c.Prune > PruneNever, "Prune is %d: it must be PruneLast, PruneFirst or "+
		"PruneNever", c.Prune)
	if c.Propagation != metav1.DeletePropagationBackground && c.Propagation != metav1.DeletePropagationForeground {
		mistakes.Addf("Propagation is %q: it must be metav1.DeletePropagationBackground or Foreground; "+
			"Child.Propagation may be Orphan", c.Propagation)
	}
	for _, name := range slices.Sorted(maps.Keys(c.ForceRemoveFinalizers)) {
		after := c.ForceRemoveFinalizers[name]
		mistakes.AddIf(strings.TrimSpace(name) == "", "ForceRemoveFinalizers has an empty name: it must be the exact "+
			"name of a finalizer")
		mistakes.AddIf(after < 0, "ForceRemoveFinalizers[%q] is %s: it must be at least 0, which means %s", name, after,
			defaultForceRemoveAfter)
	}
	c.Former.validate(mistakes)
}

func (f Former) validate(mistakes *usercode.Mistakes) {
	mistakes.AddIf(slices.Contains(f.Managers, ""), "Former.Managers contains an empty name: use the names in "+
		"managedFields")
	mistakes.AddIf(f.Children != "" && len(f.Managers) == 0, "Former.Children requires Former.Managers, which "+
		"identify the objects of the program")
	if _, err := labels.Parse(f.Children); err != nil {
		mistakes.Addf("Former.Children is %q: %w", f.Children, err)
	}
	mistakes.AddIf(f.OwnerGrace < 0, "Former.OwnerGrace is %s: it must be at least 0, which means %s", f.OwnerGrace,
		defaultOwnerGrace)
}

// has reports whether the set can find children of a kind.
func (c Config) has(kind schema.GroupKind) bool {
	return slices.ContainsFunc(c.Kinds, func(known schema.GroupVersionKind) bool { return known.GroupKind() == kind })
}

// namespacesOf returns the namespaces of an owner's children; nil means all. limit are those of the Cluster, if it is
// limited: children in others could not be found again.
func (c Config) namespacesOf(owner metav1.Object, limit []string) []string {
	if slices.Contains(c.Namespaces, metav1.NamespaceAll) || owner.GetNamespace() == "" && len(c.Namespaces) == 0 {
		if limit == nil {
			return nil
		}
		return sets.List(sets.New(limit...).Insert(owner.GetNamespace()).Delete(""))
	}
	return sets.List(sets.New(c.Namespaces...).Insert(owner.GetNamespace()).Delete(""))
}
