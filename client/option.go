package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// The options of the functions. Each function lists its options. The compiler rejects those of other types; an option
// of the right type that the function does not have is an error before any request.
type (
	// ReadOption is an option of a read: FromAPI, IfUnchanged, NotOlderThan, OfKind, PageSize, Subresource or
	// SubresourceOf.
	ReadOption interface {
		option
		forRead()
	}
	// WriteOption is an option of a write other than a deletion: ConfigurationHash, DryRun, FieldOwner,
	// FieldValidation, Force, IfAbsent, IfUnchanged, Subresource or SubresourceOf. ScaleLive accepts those that are a
	// DeleteOption too: DryRun and IfUnchanged.
	WriteOption interface {
		option
		forWrite()
	}
	// DeleteOption is an option of a deletion: DryRun, GracePeriod, IfUnchanged or Propagation.
	DeleteOption interface {
		option
		forDelete()
	}
	// WaitOption is an option of a wait: OfKind or Timeout.
	WaitOption interface {
		option
		forWait()
	}
)

// The options that several functions accept.
const (
	optionsOfList   = "FromAPI, NotOlderThan, PageSize"
	optionsOfWrite  = "DryRun, FieldOwner, FieldValidation"
	optionsOfUpdate = optionsOfWrite + ", Subresource"
	optionsOfApply  = optionsOfUpdate + ", ConfigurationHash, Force, IfAbsent, IfUnchanged"
	optionsOfDelete = "DryRun, GracePeriod, IfUnchanged, Propagation"
)

// option is an option of any function.
type option interface{ get() callOption }

// callOption implements the interfaces of all functions. Each constructor returns it as those of the functions that
// accept the option.
type callOption struct {
	name string
	set  func(s *settings) error
}

// setting returns an option that is valid in itself.
func setting(name string, set func(s *settings)) callOption {
	return callOption{name, func(s *settings) error {
		set(s)
		return nil
	}}
}

func (o callOption) get() callOption { return o }
func (callOption) forRead()          {}
func (callOption) forWrite()         {}
func (callOption) forDelete()        {}
func (callOption) forWait()          {}

// OfKind sets the kind of an object of a Go type without one: an unstructured or metadata-only object. Functions that
// take a Selection have its Kind instead.
func OfKind(kind schema.GroupVersionKind) interface {
	ReadOption
	WaitOption
} {
	return callOption{"OfKind", func(s *settings) error {
		s.kind = kind
		return checkKind(kind)
	}}
}

func checkKind(kind schema.GroupVersionKind) error {
	if kind.Kind == "" || kind.Version == "" {
		return fmt.Errorf("it names the kind %q in %q: both a kind and a version are needed", kind.Kind,
			kind.GroupVersion())
	}
	return nil
}

// FromAPI reads from the API server, and not from the informers of the client.
func FromAPI() ReadOption {
	return setting("FromAPI", func(s *settings) { s.fromAPI = true })
}

// PageSize is the number of objects in one response. Default 500, as in kubectl; 0 requests all objects at once.
func PageSize(objects int64) ReadOption {
	return callOption{"PageSize", func(s *settings) error {
		s.pageSize = objects
		if objects < 0 {
			return fmt.Errorf("it is %d: it counts objects, from 1; 0 asks for all at once", objects)
		}
		return nil
	}}
}

// NotOlderThan allows the API server to answer from its cache, if that has reached this resourceVersion: "0"
// accepts any state, which costs the server little, and may be older than states seen before. Informers are not
// used. Default, and "": the most recent state.
func NotOlderThan(resourceVersion string) ReadOption {
	return setting("NotOlderThan", func(s *settings) { s.notOlderThan, s.fromAPI = resourceVersion, true })
}

// IfUnchanged requires that the object still has the resourceVersion of the caller's object, so that the caller's
// cache was not stale. Otherwise the error is ErrChanged.
//
// This is stricter than most callers need, because every heartbeat in a status changes the resourceVersion; a
// check of the relevant fields of the live object fails less often.
func IfUnchanged() interface {
	ReadOption
	WriteOption
	DeleteOption
} {
	return setting("IfUnchanged", func(s *settings) { s.unchanged = true })
}

// IfAbsent makes Apply create the object, and never change an existing one: the error is then ErrExists. The API
// server decides, so two clients cannot both create the object, and no existing object is changed.
//
// The apply carries a resourceVersion that no object has: a server that compares resourceVersions rejects it
// for an existing object. kube-apiserver compares them for its own kinds and for custom resources; an
// aggregated API server may not. So Apply first reads the object if the group of its kind is not one of
// Kubernetes. If an aggregated API server ignores resourceVersions, an object that appears between the read and
// the apply is changed; the Outcome is then Updated.
func IfAbsent() WriteOption {
	return setting("IfAbsent", func(s *settings) { s.absent = true })
}

// DryRun makes the API server validate the request, including admission, and store nothing.
func DryRun() interface {
	WriteOption
	DeleteOption
} {
	return setting("DryRun", func(s *settings) { s.dryRun = true })
}

// FieldOwner is the field manager of the write. Default: Config.FieldOwner.
func FieldOwner(name string) WriteOption {
	return callOption{"FieldOwner", func(s *settings) error {
		s.fieldOwner = name
		return checkFieldOwner(name)
	}}
}

// FieldValidation overrides Config.FieldValidation.
func FieldValidation(policy string) WriteOption {
	return callOption{"FieldValidation", func(s *settings) error {
		s.fieldValidation = policy
		return checkFieldValidation(policy)
	}}
}

// Force makes an apply take fields from other field managers. Controllers should use it for objects that they
// own.
func Force() WriteOption {
	return setting("Force", func(s *settings) { s.force = true })
}

// ConfigurationHash makes Apply write a hash of the configuration into this annotation. A later Apply then detects
// from the object itself which configuration was applied: see Apply. If the name changes, every object is applied
// again.
func ConfigurationHash(annotation string) WriteOption {
	return callOption{"ConfigurationHash", func(s *settings) error {
		s.hash = annotation
		if mistakes := validation.IsQualifiedName(annotation); len(mistakes) > 0 {
			return fmt.Errorf("%q is not the name of an annotation: %s", annotation, strings.Join(mistakes, "; "))
		}
		return nil
	}}
}

// Subresource makes the request for a subresource with the kind of the object, usually "status". For
// subresources of another kind (a Scale, an Eviction) see SubresourceOf.
func Subresource(name string) interface {
	ReadOption
	WriteOption
} {
	return callOption{"Subresource", func(s *settings) error { return s.setSubresource(name) }}
}

// Propagation determines how the dependents of a deleted object are deleted. Default: the kind's own policy,
// usually in the background.
func Propagation(policy metav1.DeletionPropagation) DeleteOption {
	return setting("Propagation", func(s *settings) { s.propagation = &policy })
}

// GracePeriod is the time for a Pod to terminate, in whole seconds. 0 kills it, and allows a new Pod with the same
// name while the old one may still run. Default: the period of the Pod.
func GracePeriod(d time.Duration) DeleteOption {
	return callOption{"GracePeriod", func(s *settings) error {
		s.grace = new(int64(d / time.Second))
		if d < 0 || d%time.Second != 0 {
			return fmt.Errorf("it is %s: it counts in whole seconds, from 0", d)
		}
		return nil
	}}
}

// Timeout bounds a wait. Default 5 min. Negative: no limit other than ctx.
func Timeout(d time.Duration) WaitOption {
	return setting("Timeout", func(s *settings) { s.timeout = d })
}

// settings are the evaluated options of a call.
type settings struct {
	kind            schema.GroupVersionKind
	fromAPI         bool
	namespaces      []string // of the selection, each once; nil: all
	allNamespaces   bool     // the selection has kube.AllNamespaces
	labels          labels.Selector
	fields          fields.Selector
	pageSize        int64
	notOlderThan    string
	unchanged       bool
	absent          bool
	dryRun          bool
	fieldOwner      string
	fieldValidation string
	force           bool
	hash            string
	subresource     string
	parent          kube.Object // of a subresource with a kind of its own
	uid             types.UID
	version         string // with uid: the preconditions of a deletion
	propagation     *metav1.DeletionPropagation
	grace           *int64
	timeout         time.Duration // of a wait; 0: defaultWaitTimeout; negative: no limit

	resume bool // continue with the current state if the API server has dropped the state of the first page
}

// defaultPageSize is the page size of kubectl and of client-go's pager.
const defaultPageSize = 500

// newSettings evaluates the options of a call that accepts these, separated by ", ". The error lists every invalid one.
func newSettings[O option](options []O, accepted string) (settings, error) {
	s := settings{pageSize: defaultPageSize}
	var errs []error
	for _, given := range options {
		if any(given) == nil {
			errs = append(errs, errors.New("an option is nil"))
			continue
		}
		o := given.get()
		err := fmt.Errorf("this call accepts only %s", accepted)
		if slices.Contains(strings.Split(accepted, ", "), o.name) {
			err = o.set(&s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("option %s: %w", o.name, err))
		}
	}
	return s, errors.Join(errs...)
}
