package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The options of each function. An option of a function implements the function's interface, so the
// compiler rejects the others. The result type of each option lists the functions that accept it.
type (
	// GetOption is an option of Get: OfKind, FromAPI, NotOlderThan or Subresource. Exists accepts those that
	// are a ListOption too, which is all but Subresource.
	GetOption interface {
		option
		forGet()
	}
	// ListOption is an option of List, ListPage, All and Keys: OfKind, FromAPI, InNamespace, AllNamespaces, WithLabels,
	// LabelSelector, FieldSelector, PageSize or NotOlderThan.
	ListOption interface {
		option
		forList()
	}
	// WatchOption is an option of Watch: a ListOption other than FromAPI and PageSize.
	WatchOption interface {
		ListOption
		forWatch()
	}
	// GetLiveOption is an option of GetLive: IfUnchanged.
	GetLiveOption interface {
		option
		forLive()
	}
	// ApplyOption is an option of Apply and ApplyConfiguration: ConfigurationHash, DryRun, FieldOwner,
	// FieldValidation, Force, Subresource, IfUnchanged or IfAbsent. ScaleLive accepts those that are a
	// DeleteOption too: DryRun and IfUnchanged.
	ApplyOption interface {
		option
		forApply()
	}
	// UpdateOption is an option of Update and Patch: a WriteOption or Subresource.
	UpdateOption interface {
		ApplyOption
		forUpdate()
	}
	// WriteOption is an option of Create, CreateOrUpdate, CreateOrPatch, SetLabels, RemoveLabels,
	// SetAnnotations, RemoveAnnotations, EnsureNamespace, CreateSubresource, UpdateSubresource and
	// PatchSubresource: DryRun, FieldOwner or FieldValidation.
	WriteOption interface {
		UpdateOption
		forWrite()
	}
	// TakeOverOption is an option of TakeOver: DryRun, FieldOwner or IfUnchanged.
	TakeOverOption interface {
		ApplyOption
		forTakeOver()
	}
	// DeleteOption is an option of Delete and DeleteLive: DryRun, IfUnchanged, Propagation or GracePeriod.
	DeleteOption interface {
		option
		forDelete()
	}
	// DeleteAllOfOption is an option of DeleteAllOf and DeleteMatching: OfKind, InNamespace, AllNamespaces, WithLabels,
	// LabelSelector, FieldSelector, DryRun, Propagation or GracePeriod.
	DeleteAllOfOption interface {
		option
		forDeleteAllOf()
	}
	// WaitOption is an option of WaitFor and WaitDeleted: OfKind or Timeout.
	WaitOption interface {
		option
		forWait()
	}
	// WaitObjectsOption is an option of WaitForObjects and WaitForNone: OfKind, InNamespace, AllNamespaces, WithLabels,
	// LabelSelector, FieldSelector or Timeout.
	WaitObjectsOption interface {
		option
		forWaitObjects()
	}
)

// option is an option of any function.
type option interface{ applyTo(s *settings) }

// optionFunc implements the interfaces of all functions. Each constructor returns it as those of the
// functions that accept the option.
type optionFunc func(s *settings)

func (f optionFunc) applyTo(s *settings) { f(s) }
func (optionFunc) forGet()               {}
func (optionFunc) forList()              {}
func (optionFunc) forWatch()             {}
func (optionFunc) forLive()              {}
func (optionFunc) forApply()             {}
func (optionFunc) forUpdate()            {}
func (optionFunc) forWrite()             {}
func (optionFunc) forTakeOver()          {}
func (optionFunc) forDelete()            {}
func (optionFunc) forDeleteAllOf()       {}
func (optionFunc) forWait()              {}
func (optionFunc) forWaitObjects()       {}

// OfKind sets the kind of objects of Go types without one: unstructured and metadata-only objects.
func OfKind(kind schema.GroupVersionKind) interface {
	GetOption
	WatchOption
	DeleteAllOfOption
	WaitOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) {
		s.kind = kind
		if kind.Kind == "" || kind.Version == "" {
			s.problems = append(s.problems, fmt.Errorf("option OfKind names the kind %q in %q: both a kind and a "+
				"version are needed", kind.Kind, kind.GroupVersion()))
		}
	})
}

// FromAPI reads from the API server, and not from the informers of the client.
func FromAPI() interface {
	GetOption
	ListOption
} {
	return optionFunc(func(s *settings) { s.fromAPI = true })
}

// InNamespace selects the objects of one namespace. An empty namespace, which was probably computed from an empty
// value, is an error for kinds that live in namespaces. Default: Config.Namespace; without that, all namespaces.
func InNamespace(namespace string) interface {
	WatchOption
	DeleteAllOfOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) { s.namespace, s.inNamespace = namespace, true })
}

// AllNamespaces selects the objects of all namespaces. DeleteMatching requires it for that. It does not go together
// with InNamespace and Config.Namespace.
func AllNamespaces() interface {
	WatchOption
	DeleteAllOfOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) { s.allNamespaces = true })
}

// WithLabels selects objects that have all these labels.
func WithLabels(set map[string]string) interface {
	WatchOption
	DeleteAllOfOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) {
		selector, err := labels.ValidatedSelectorFromSet(set)
		s.selectLabels("WithLabels", selector, err)
	})
}

// LabelSelector selects objects by label, as in "app=web,tier!=cache".
func LabelSelector(selector string) interface {
	WatchOption
	DeleteAllOfOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) {
		parsed, err := labels.Parse(selector)
		if err != nil {
			err = fmt.Errorf("%q: %w", selector, err)
		}
		s.selectLabels("LabelSelector", parsed, err)
	})
}

// FieldSelector selects objects by field, as in "spec.nodeName=node-1". Each kind has its own selectable
// fields; the API server rejects others. Several selectors, of labels and fields, must all match.
//
// List, All and Keys read from an informer that covers the selection if it can evaluate every requirement: those on
// metadata.name and metadata.namespace, and one that another field has a value which is not empty, if the informer
// stores whole objects and one of its Config.Indexes has the name of the field. So a field that only an index has,
// such as a reference in the spec of a custom resource, can be selected as soon as the informer has listed; until then
// the API server rejects it.
func FieldSelector(selector string) interface {
	WatchOption
	DeleteAllOfOption
	WaitObjectsOption
} {
	return optionFunc(func(s *settings) {
		parsed, err := fields.ParseSelector(selector)
		if s.fields != nil && err == nil {
			parsed = fields.AndSelectors(s.fields, parsed)
		}
		s.fields = parsed
		s.selectors = append(s.selectors, "FieldSelector")
		s.problem("FieldSelector", err)
	})
}

// PageSize is the number of objects in one response. Default 500, as in kubectl; 0 requests all objects at once.
func PageSize(objects int64) ListOption {
	return optionFunc(func(s *settings) {
		s.pageSize = objects
		if objects < 0 {
			s.problems = append(s.problems,
				fmt.Errorf("option PageSize is %d: it counts objects, from 1; 0 asks for all at once", objects))
		}
	})
}

// NotOlderThan allows the API server to answer from its cache, if that has reached this resourceVersion: "0"
// accepts any state, which costs the server little, and may be older than states seen before. Informers are not
// used. Default, and "": the most recent state.
func NotOlderThan(resourceVersion string) interface {
	GetOption
	WatchOption
} {
	return optionFunc(func(s *settings) { s.notOlderThan, s.fromAPI = resourceVersion, true })
}

// IfUnchanged requires that the object still has the resourceVersion of the caller's object, so that the caller's
// cache was not stale. Otherwise the error is ErrChanged.
//
// This is stricter than most callers need, because every heartbeat in a status changes the resourceVersion; a
// check of the relevant fields of the live object fails less often.
func IfUnchanged() interface {
	GetLiveOption
	TakeOverOption
	DeleteOption
} {
	return optionFunc(func(s *settings) { s.unchanged = true })
}

// IfAbsent makes Apply create the object, and never change an existing one: the error is then ErrExists. The API
// server decides, so two clients cannot both create the object, and no existing object is changed.
//
// The apply carries a resourceVersion that no object has: a server that compares resourceVersions rejects it
// for an existing object. kube-apiserver compares them for its own kinds and for custom resources; an
// aggregated API server may not. So Apply first reads the object if the group of its kind is not one of
// Kubernetes. If an aggregated API server ignores resourceVersions, an object that appears between the read and
// the apply is changed; the Outcome is then Updated.
func IfAbsent() ApplyOption {
	return optionFunc(func(s *settings) { s.absent = true })
}

// DryRun makes the API server validate the request, including admission, and store nothing.
func DryRun() interface {
	WriteOption
	TakeOverOption
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) { s.dryRun = true })
}

// FieldOwner is the field manager of the write. Default: Config.FieldOwner.
func FieldOwner(name string) interface {
	WriteOption
	TakeOverOption
} {
	return optionFunc(func(s *settings) {
		s.fieldOwner = name
		s.problem("FieldOwner", checkFieldOwner(name))
	})
}

// FieldValidation overrides Config.FieldValidation.
func FieldValidation(policy string) WriteOption {
	return optionFunc(func(s *settings) {
		s.fieldValidation = policy
		s.problem("FieldValidation", checkFieldValidation(policy))
	})
}

// Force makes an apply take fields from other field managers. Controllers should use it for objects that they
// own.
func Force() ApplyOption {
	return optionFunc(func(s *settings) { s.force = true })
}

// ConfigurationHash makes Apply write a hash of the configuration into this annotation. A later Apply then detects
// from the object itself which configuration was applied: see Apply. If the name changes, every object is applied
// again.
func ConfigurationHash(annotation string) ApplyOption {
	return optionFunc(func(s *settings) {
		s.hash = annotation
		if mistakes := validation.IsQualifiedName(annotation); len(mistakes) > 0 {
			s.problem("ConfigurationHash", fmt.Errorf("%q is not the name of an annotation: %s", annotation,
				strings.Join(mistakes, "; ")))
		}
	})
}

// Subresource makes the request for a subresource with the kind of the object, usually "status". For
// subresources of another kind (a Scale, an Eviction) see GetSubresource, CreateSubresource, UpdateSubresource
// and PatchSubresource.
func Subresource(name string) interface {
	GetOption
	UpdateOption
} {
	return optionFunc(func(s *settings) {
		s.subresource = name
		s.problem("Subresource", checkSubresource(name))
	})
}

// Propagation determines how the dependents of a deleted object are deleted. Default: the kind's own policy,
// usually in the background.
func Propagation(policy metav1.DeletionPropagation) interface {
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) { s.propagation = &policy })
}

// GracePeriod is the time for a Pod to terminate, in whole seconds. 0 kills it, and allows a new Pod with the same
// name while the old one may still run. Default: the period of the Pod.
func GracePeriod(d time.Duration) interface {
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) {
		if d < 0 || d%time.Second != 0 {
			s.problems = append(s.problems,
				fmt.Errorf("option GracePeriod is %s: it counts in whole seconds, from 0", d))
		}
		s.grace = new(int64(d / time.Second))
	})
}

// settings are the evaluated options of a call.
type settings struct {
	kind            schema.GroupVersionKind
	fromAPI         bool
	namespace       string
	inNamespace     bool // option InNamespace
	allNamespaces   bool
	labels          labels.Selector
	fields          fields.Selector
	selectors       []string // the names of the options that labels and fields come from
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
	uid             types.UID
	version         string // with uid: the preconditions of a deletion
	propagation     *metav1.DeletionPropagation
	grace           *int64
	timeout         time.Duration // of a wait; 0: defaultWaitTimeout; negative: no limit

	resume   bool // continue with the current state if the API server has dropped the state of the first page
	problems []error
}

// defaultPageSize is the page size of kubectl and of client-go's pager.
const defaultPageSize = 500

// newSettings evaluates options. The error lists every invalid one.
func newSettings[O option](options []O) (settings, error) {
	s := settings{pageSize: defaultPageSize}
	for _, o := range options {
		if any(o) == nil {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		o.applyTo(&s)
	}
	return s, errors.Join(s.problems...)
}

func (s *settings) problem(option string, err error) {
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("option %s: %w", option, err))
	}
}
