package owned

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// defaultForceRemoveAfter is the default of Config.ForceRemoveAfter.
const defaultForceRemoveAfter = 10 * time.Minute

// defaultFormerOwnerGrace is the default of Config.FormerOwnerGrace.
const defaultFormerOwnerGrace = time.Minute

// ConflictPolicy determines how an apply handles desired fields that another field manager owns.
type ConflictPolicy string

// Conflict policies.
const (
	// ForceConflicts overwrites the fields and takes their ownership, as is usual for controllers.
	ForceConflicts ConflictPolicy = ""
	// ReportConflicts does not change the child. The conflict is the child's error.
	ReportConflicts ConflictPolicy = "Report"
)

// PrunePolicy determines when children are deleted that are not desired anymore.
type PrunePolicy string

// Prune policies.
const (
	// PruneLast deletes them when all desired children of all waves are applied.
	PruneLast PrunePolicy = ""
	// PruneFirst deletes them before desired children are applied, for old children that occupy a resource that the new
	// ones need, such as a port or quota. Of several waves only the highest is deleted before; lower waves follow in
	// later runs, and the desired children do not wait for them.
	PruneFirst PrunePolicy = "First"
	// PruneNever only reports them.
	PruneNever PrunePolicy = "Never"
)

// Config configures a Set. New does not keep or change the caller's copy.
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

	// OnConflict determines how an apply handles fields of other field managers. Default ForceConflicts.
	OnConflict ConflictPolicy
	// Prune determines when children are deleted that are not desired anymore. Default PruneLast.
	Prune PrunePolicy
	// Propagation determines what happens to the dependents of a deleted child. With
	// metav1.DeletePropagationForeground the child is gone only after them. metav1.DeletePropagationOrphan is an error,
	// because it would leave the dependents of pruned children behind: see Child.Propagation. Default
	// metav1.DeletePropagationBackground.
	Propagation metav1.DeletionPropagation
	// Recreate permits to delete every child and create it again if immutable fields must change. Child.Recreate
	// permits it for one child. Default false.
	Recreate bool
	// AdoptOrphans takes over existing objects with the name of a child that have no owner: no owner reference and no
	// labels of another set. This includes children of an earlier owner of the same name. Default false: they are
	// reported as Foreign and not changed.
	AdoptOrphans bool

	// FormerManagers are the field managers with which earlier versions of the program, or another tool, wrote children
	// by Update (see kubectl get --show-managed-fields). Their fields that are not desired are removed, once for each
	// child, which is noted in an annotation; Plan shows them. Default: none; such fields stay, and Apply reports those
	// of the program's own manager names.
	FormerManagers []string
	// FormerChildren also finds children without the labels of the set: objects that have the owner as their controller
	// and were written by one of FormerManagers. Those that are not desired are pruned. It is a label selector for
	// these objects, such as "app.kubernetes.io/managed-by=webapp"; "!" + LabelSet selects all objects without a set.
	// They are listed from the API server once per owner and process, and again if the owner was not handled for a day.
	// If an owner has several sets, each must select only its own children. Default "": none.
	FormerChildren string

	// ForceRemoveFinalizers are the exact names of other controllers' finalizers that are removed from children that
	// have been terminating for ForceRemoveAfter. The cleanup by these controllers is skipped: volumes, load balancers
	// and the like may be left behind forever. Each removal is logged as a warning, reported, and an Event. Default:
	// none; finalizers of other controllers are never removed.
	ForceRemoveFinalizers []string
	// ForceRemoveAfter is the time since the deletionTimestamp of a child. Default 10 min.
	ForceRemoveAfter time.Duration

	// FormerOwnerGrace is the time for the garbage collector to delete a child of a former owner: an earlier object of
	// the owner's kind and name. It starts with the creation of the owner, or of the child if that is younger. After
	// it, Apply deletes the child by its uid and creates it again, if it has the labels and the annotation of a child
	// of this set and no other owner. Until then it is Foreign. Default 1 min.
	FormerOwnerGrace time.Duration

	// Events writes Events about owners: ChildRecreating and FinalizersForceRemoved. It is an event.Recorder or any
	// other value with this method, which must not block. Default: no Events.
	Events interface {
		Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
	}
}

// Set manages the children of owners. It keeps no state of children between calls, and is safe for concurrent use.
// There should be only one call at a time for one owner, which controllers ensure.
type Set struct {
	config    Config                                        // immutable after New
	dry       *client.Client                                // for plans
	notServed apiobject.Recent[schema.GroupKind, time.Time] // since when the cluster does not serve a kind
	searched  apiobject.Recent[types.UID, bool]             // owners without former children; see Config.FormerChildren
	deletions apiobject.Recent[ownedChild, deletion]        // of children; see checkLoop
}

// New returns a Set. It makes no request. The error lists all mistakes in config.
func New(config Config) (*Set, error) {
	config.Kinds = slices.Clone(config.Kinds)
	config.Namespaces = slices.Clone(config.Namespaces)
	config.FormerManagers = slices.Sorted(slices.Values(config.FormerManagers))
	config.ForceRemoveFinalizers = slices.Clone(config.ForceRemoveFinalizers)
	config.Propagation = cmp.Or(config.Propagation, metav1.DeletePropagationBackground)
	config.ForceRemoveAfter = cmp.Or(config.ForceRemoveAfter, defaultForceRemoveAfter)
	config.FormerOwnerGrace = cmp.Or(config.FormerOwnerGrace, defaultFormerOwnerGrace)
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new set of owned objects: %w", err)
	}
	dry, err := config.Client.With(func(c *client.Config) { c.DryRun = true })
	if err != nil {
		return nil, fmt.Errorf("new set of owned objects: %w", err)
	}
	s := &Set{config: config, dry: dry}
	s.notServed.Keep, s.searched.Keep, s.deletions.Keep = notServedFor, minSearchedFor, loopWindow
	return s, nil
}

func (c Config) validate() error {
	var mistakes usercode.Mistakes
	if c.Client == nil {
		mistakes.Addf("Client is required: client.New makes one")
	}
	if c.Name == "" {
		mistakes.Addf("Name is required, to find children again")
	} else if problems := validation.IsValidLabelValue(c.Name); len(problems) > 0 {
		mistakes.Addf("Name is %q, which is not a label value: %s", c.Name, strings.Join(problems, "; "))
	}
	if len(c.Kinds) == 0 {
		mistakes.Addf("Kinds is required: all kinds of children, including those of earlier versions of the program")
	}
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
	if c.OnConflict != ForceConflicts && c.OnConflict != ReportConflicts {
		mistakes.Addf("OnConflict is %q: it must be ForceConflicts or ReportConflicts", c.OnConflict)
	}
	if c.Prune != PruneLast && c.Prune != PruneFirst && c.Prune != PruneNever {
		mistakes.Addf("Prune is %q: it must be PruneLast, PruneFirst or PruneNever", c.Prune)
	}
	if c.Propagation != metav1.DeletePropagationBackground && c.Propagation != metav1.DeletePropagationForeground {
		mistakes.Addf("Propagation is %q: it must be metav1.DeletePropagationBackground or Foreground; "+
			"Child.Propagation may be Orphan", c.Propagation)
	}
	for i, name := range c.ForceRemoveFinalizers {
		if strings.TrimSpace(name) == "" {
			mistakes.Addf("ForceRemoveFinalizers[%d] is empty: it must be the exact name of a finalizer", i)
		}
	}
	if slices.Contains(c.FormerManagers, "") {
		mistakes.Addf("FormerManagers contains an empty name: use the names in managedFields")
	}
	if c.FormerChildren != "" && len(c.FormerManagers) == 0 {
		mistakes.Addf("FormerChildren requires FormerManagers, which identify the objects of the program")
	}
	if _, err := labels.Parse(c.FormerChildren); err != nil {
		mistakes.Addf("FormerChildren is %q: %w", c.FormerChildren, err)
	}
	if c.ForceRemoveAfter < 0 {
		mistakes.Addf("ForceRemoveAfter is %s: it must be at least 0, which means %s", c.ForceRemoveAfter,
			defaultForceRemoveAfter)
	}
	if c.FormerOwnerGrace < 0 {
		mistakes.Addf("FormerOwnerGrace is %s: it must be at least 0, which means %s", c.FormerOwnerGrace,
			defaultFormerOwnerGrace)
	}
}

// has reports whether the set can find children of a kind.
func (c Config) has(kind schema.GroupKind) bool {
	return slices.ContainsFunc(c.Kinds, func(known schema.GroupVersionKind) bool { return known.GroupKind() == kind })
}

// namespacesOf returns the namespaces of an owner's children; nil means all.
func (c Config) namespacesOf(owner metav1.Object) []string {
	if slices.Contains(c.Namespaces, metav1.NamespaceAll) || owner.GetNamespace() == "" && len(c.Namespaces) == 0 {
		return nil
	}
	var all []string
	for _, namespace := range append([]string{owner.GetNamespace()}, c.Namespaces...) {
		if namespace != "" && !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}
