package owned

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
)

// defaultForceRemoveAfter is how long a child must have been terminating before Config.ForceRemoveFinalizers
// is heeded, when Config.ForceRemoveAfter is zero.
const defaultForceRemoveAfter = 10 * time.Minute

// defaultFormerOwnerGrace is the default of Config.FormerOwnerGrace.
const defaultFormerOwnerGrace = time.Minute

// ConflictPolicy says what is done about fields of children that other field managers have.
type ConflictPolicy string

// The policies for conflicts.
const (
	// ForceConflicts takes the fields: controllers own their children, and what they declare is right.
	ForceConflicts ConflictPolicy = ""
	// ReportConflicts leaves them, and the child as it is: the conflict is the child's error.
	ReportConflicts ConflictPolicy = "Report"
)

// PrunePolicy says when children are deleted that are no longer desired.
type PrunePolicy string

// The policies for pruning.
const (
	// PruneLast deletes them when all that is desired was applied, in the last wave too.
	PruneLast PrunePolicy = ""
	// PruneFirst deletes them before anything is applied: where the old ones hold what the new
	// ones need, such as a port, or quota. Of several waves, that is the last one; what is desired
	// does not wait for the others, which go in later runs.
	PruneFirst PrunePolicy = "First"
	// PruneNever reports them and leaves them.
	PruneNever PrunePolicy = "Never"
)

// Config says what a Set owns, and how. It is taken by value: New neither keeps nor changes the
// caller's.
type Config struct {
	// Client makes the requests. It needs a FieldOwner, to which the children's fields then
	// belong; its Informers answer what they cover. Required.
	Client *client.Client
	// Name is the set's: a label value, "webapp", which no other controller of the cluster should
	// use. It must not change, or children are no longer found. Required.
	Name string
	// Kinds are all kinds that children have, and all that they had in earlier versions of the
	// program: children of other kinds are not found, and so never deleted. Children may be
	// of another version of a kind, and are found when the cluster serves only others. Kinds that
	// it does not serve have no children; Apply asks for them again after 10 min, unless a
	// child is desired, Delete each time. Required.
	Kinds []schema.GroupVersionKind
	// Namespaces are those in which children may be, besides the owner's;
	// metav1.NamespaceAll stands for all. It must name those of earlier versions of the program
	// too. Default: only the owner's; for owners that live in none: all.
	Namespaces []string

	// OnConflict says what is done about fields that other field managers have. Default ForceConflicts.
	OnConflict ConflictPolicy
	// Prune says when children are deleted that are no longer desired. Default PruneLast.
	Prune PrunePolicy
	// Propagation says what becomes of what a deleted child owns itself:
	// metav1.DeletePropagationForeground deletes that before the child is gone.
	// Default metav1.DeletePropagationBackground.
	Propagation metav1.DeletionPropagation
	// Recreate allows that any child be deleted and created anew when fields of it are to change
	// which cannot be changed. Child.Recreate allows it for one. Default false.
	Recreate bool
	// AdoptOrphans takes over what is in the place of a child and belongs to nobody: no owner
	// reference, and not the labels of another set. That includes what an earlier owner of the
	// same name has left behind. Default false: it is left as it is, and reported.
	AdoptOrphans bool

	// FormerManagers are the field managers by which earlier versions of the program, or another
	// tool, have written children by Update: kubectl get --show-managed-fields shows them. What they
	// have written and the desired children do not have is removed, once for each child
	// (AnnotationTakenOver), and Plan shows it. Default: none, and such fields stay; Apply reports
	// those of the program's own names.
	FormerManagers []string
	// FormerChildren also finds children without the labels of the set: objects whose controller is
	// the owner, and which one of FormerManagers has written. Those that are not desired are pruned.
	// They are listed by requests, once for each owner and process, and again when an owner was not
	// handled for a day. It is a label selector for the objects to be listed, such as
	// "app.kubernetes.io/managed-by=webapp"; "!" + LabelSet selects all that belong to no set.
	// Of several sets of one owner, each must select its own children only. Default "": none are looked for.
	FormerChildren string

	// ForceRemoveFinalizers names finalizers of other controllers that are removed from children
	// which have been terminating for ForceRemoveAfter, so that they go although nobody does what
	// the finalizers stand for: volumes, load balancers and the like may stay behind for ever.
	// Names must match exactly. Each removal is logged as a warning, is in the report, and is an
	// Event. Default: none, and finalizers of others are never touched.
	ForceRemoveFinalizers []string
	// ForceRemoveAfter is counted from a child's deletionTimestamp. Default 10 min.
	ForceRemoveAfter time.Duration

	// FormerOwnerGrace is how long Kubernetes' garbage collector has to delete a child that belongs to
	// an earlier object of the owner's kind and name, which is gone. It is counted from the creation
	// of the owner, or of the child if that is younger. After that Apply deletes the child by its uid
	// and creates it anew, if it carries the labels and the annotation of a child of this set and has
	// no other owner. Until then it is Foreign. Default 1 min.
	FormerOwnerGrace time.Duration

	// Logger receives a warning for each finalizer that is released. Default: slog.Default() at
	// the time of New.
	Logger *slog.Logger
	// Events writes Events about owners: a child is recreated, or finalizers were force-removed. It is an
	// event.Recorder, or anything else with this method, which must not block. Default: no Events.
	Events interface {
		Event(regarding corev1.ObjectReference, eventType, reason, action, note string)
	}
}

// Set owns children. It keeps nothing of them between calls, and is safe for concurrent use; for
// one owner there should be one call at a time, as controllers see to it.
type Set struct {
	config  Config         // immutable after New
	dry     *client.Client // for plans
	missing missing
	// searched are the owners whose former children were looked for; see Config.FormerChildren.
	searched searched
}

// New makes a Set. It makes no request. The error names every mistake in config.
func New(config Config) (*Set, error) {
	config.Kinds = slices.Clone(config.Kinds)
	config.Namespaces = slices.Clone(config.Namespaces)
	config.FormerManagers = slices.Sorted(slices.Values(config.FormerManagers))
	config.ForceRemoveFinalizers = slices.Clone(config.ForceRemoveFinalizers)
	config.Propagation = cmp.Or(config.Propagation, metav1.DeletePropagationBackground)
	config.ForceRemoveAfter = cmp.Or(config.ForceRemoveAfter, defaultForceRemoveAfter)
	config.FormerOwnerGrace = cmp.Or(config.FormerOwnerGrace, defaultFormerOwnerGrace)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("make a set of owned objects: %w", err)
	}
	dry, err := config.Client.With(func(c *client.Config) { c.DryRun = true })
	if err != nil {
		return nil, fmt.Errorf("make a set of owned objects: %w", err)
	}
	return &Set{config: config, dry: dry}, nil
}

func (c Config) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Client == nil {
		fail("Client is required: client.New makes one")
	} else if c.Client.Config().FieldOwner == "" {
		fail("Client has no FieldOwner, to which the children's fields would belong: set it in its Config")
	}
	if c.Name == "" {
		fail("Name is required: by it children are found again")
	} else if problems := validation.IsValidLabelValue(c.Name); len(problems) > 0 {
		fail("Name is %q, which is no label value: %s", c.Name, strings.Join(problems, "; "))
	}
	if len(c.Kinds) == 0 {
		fail("Kinds is required: all kinds that children have, and have had")
	}
	seen := map[schema.GroupKind]bool{}
	for i, kind := range c.Kinds {
		switch {
		case kind.Kind == "" || kind.Version == "":
			fail("Kinds[%d] is %q: it needs a version and a kind", i, kind)
		case seen[kind.GroupKind()]:
			fail("Kinds[%d] names %s again: one version of it will do", i, kind.GroupKind())
		}
		seen[kind.GroupKind()] = true
	}
	errs = append(errs, c.validatePolicies()...)
	return errors.Join(errs...)
}

func (c Config) validatePolicies() (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.OnConflict != ForceConflicts && c.OnConflict != ReportConflicts {
		fail("OnConflict is %q: it must be ForceConflicts or ReportConflicts", c.OnConflict)
	}
	if c.Prune != PruneLast && c.Prune != PruneFirst && c.Prune != PruneNever {
		fail("Prune is %q: it is PruneLast, PruneFirst or PruneNever", c.Prune)
	}
	switch c.Propagation {
	case metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan:
	default:
		fail("Propagation is %q: it is one of metav1.DeletePropagationBackground, Foreground and Orphan", c.Propagation)
	}
	for i, name := range c.ForceRemoveFinalizers {
		if strings.TrimSpace(name) == "" {
			fail("ForceRemoveFinalizers[%d] is empty: it is the exact name of a finalizer", i)
		}
	}
	if slices.Contains(c.FormerManagers, "") {
		fail("FormerManagers has an empty name: name the field managers of managedFields")
	}
	if c.FormerChildren != "" && len(c.FormerManagers) == 0 {
		fail("FormerChildren needs FormerManagers: by them it is known who has written an object")
	}
	if _, err := labels.Parse(c.FormerChildren); err != nil {
		fail("FormerChildren is %q: %w", c.FormerChildren, err)
	}
	if c.ForceRemoveAfter < 0 {
		fail("ForceRemoveAfter is %s: it is at least 0, which means %s", c.ForceRemoveAfter, defaultForceRemoveAfter)
	}
	if c.FormerOwnerGrace < 0 {
		fail("FormerOwnerGrace is %s: it is at least 0, which means %s", c.FormerOwnerGrace, defaultFormerOwnerGrace)
	}
	return errs
}

// has reports whether the set finds children of a kind.
func (c Config) has(kind schema.GroupKind) bool {
	return slices.ContainsFunc(c.Kinds, func(known schema.GroupVersionKind) bool { return known.GroupKind() == kind })
}

// namespacesOf returns the namespaces in which an owner's children may be; one that is empty
// stands for all.
func (c Config) namespacesOf(owner metav1.Object) []string {
	if slices.Contains(c.Namespaces, metav1.NamespaceAll) || owner.GetNamespace() == "" && len(c.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	var all []string
	for _, namespace := range append([]string{owner.GetNamespace()}, c.Namespaces...) {
		if namespace != "" && !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}
