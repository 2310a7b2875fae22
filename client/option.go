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
	// ListOption is an option of List, All and Keys: OfKind, FromAPI, InNamespace, WithLabels, LabelSelector,
	// FieldSelector, PageSize or NotOlderThan.
	ListOption interface {
		option
		forList()
	}
	// WatchOption is an option of Watch: a ListOption other than FromAPI and PageSize.
	WatchOption interface {
		ListOption
		forWatch()
	}
	// LiveOption is an option of Live: IfUnchanged.
	LiveOption interface {
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
	// DeleteAllOfOption is an option of DeleteAllOf: OfKind, InNamespace, WithLabels, LabelSelector,
	// FieldSelector, DryRun, Propagation or GracePeriod.
	DeleteAllOfOption interface {
		option
		forDeleteAllOf()
	}
	// WaitOption is an option of WaitFor and WaitDeleted: OfKind or Timeout.
	WaitOption interface {
		option
		forWait()
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

// OfKind names the kind of objects whose Go type does not tell: unstructured ones and those
// that are metadata only.
func OfKind(kind schema.GroupVersionKind) interface {
	GetOption
	WatchOption
	DeleteAllOfOption
	WaitOption
} {
	return optionFunc(func(s *settings) {
		s.kind = kind
		if kind.Kind == "" || kind.Version == "" {
			s.problems = append(s.problems, fmt.Errorf("option OfKind names the kind %q in %q: both a kind and a version are needed", kind.Kind, kind.GroupVersion()))
		}
	})
}

// FromAPI asks the API server, whatever informers the client has.
func FromAPI() interface {
	GetOption
	ListOption
} {
	return optionFunc(func(s *settings) { s.fromAPI = true })
}

// InNamespace selects the objects of one namespace. Default: Config.Namespace;
// without that, all namespaces.
func InNamespace(namespace string) interface {
	WatchOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) { s.namespace = namespace })
}

// WithLabels selects objects that have all these labels.
func WithLabels(set map[string]string) interface {
	WatchOption
	DeleteAllOfOption
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
} {
	return optionFunc(func(s *settings) {
		parsed, err := labels.Parse(selector)
		if err != nil {
			err = fmt.Errorf("%q: %w", selector, err)
		}
		s.selectLabels("LabelSelector", parsed, err)
	})
}

// FieldSelector selects objects by field, as in "spec.nodeName=node-1". Which fields can be
// selected depends on the kind; the API server refuses the others. Informers do not know
// fields: it is asked. Of several selectors all must
// match, also together with those by label.
func FieldSelector(selector string) interface {
	WatchOption
	DeleteAllOfOption
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

// PageSize is how many objects the API server sends in one answer. Default 500, as kubectl
// has it; 0 asks for all at once.
func PageSize(objects int64) ListOption {
	return optionFunc(func(s *settings) {
		s.pageSize = objects
		if objects < 0 {
			s.problems = append(s.problems, fmt.Errorf("option PageSize is %d: it counts objects, from 1; 0 asks for all at once", objects))
		}
	})
}

// NotOlderThan lets the API server answer from its own cache, if that has come to this
// resourceVersion: "0" takes any state, which costs the server little, and may be older than
// what was seen before. Informers are not asked. Default, and "": the state that the cluster
// agrees on now.
func NotOlderThan(resourceVersion string) interface {
	GetOption
	WatchOption
} {
	return optionFunc(func(s *settings) { s.notOlderThan, s.fromAPI = resourceVersion, true })
}

// IfUnchanged demands that the object has still the resourceVersion which the caller's has: that
// the cache was not stale at all. Otherwise the answer is ErrChanged.
//
// It is stricter than most acts need, because every heartbeat in a status changes the
// resourceVersion; a check of what matters in the live object disturbs less.
func IfUnchanged() interface {
	LiveOption
	TakeOverOption
	DeleteOption
} {
	return optionFunc(func(s *settings) { s.unchanged = true })
}

// IfAbsent lets Apply create the object, and never change one that exists: the error is ErrExists
// then. The API server decides, so two clients cannot both create the object, and no existing object
// is changed.
//
// The apply has a resourceVersion that no object has: a server that compares resourceVersions
// refuses it for an object that exists. kube-apiserver compares them for its own kinds and for custom
// resources; an aggregated API server may not. So for a kind whose group is not one of Kubernetes
// the object is read first, and on an aggregated API server which ignores resourceVersions, an
// object that appears between the read and the apply is changed; then the Outcome is Updated.
func IfAbsent() ApplyOption {
	return optionFunc(func(s *settings) { s.absent = true })
}

// DryRun asks the API server to check everything, admission included, and to keep nothing.
func DryRun() interface {
	WriteOption
	TakeOverOption
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) { s.dryRun = true })
}

// FieldOwner names the field manager of this write. Default: Config.FieldOwner.
func FieldOwner(name string) interface {
	WriteOption
	TakeOverOption
} {
	return optionFunc(func(s *settings) {
		s.fieldOwner = name
		s.problem("FieldOwner", checkFieldOwner(name))
	})
}

// FieldValidation is Config.FieldValidation of this write.
func FieldValidation(policy string) WriteOption {
	return optionFunc(func(s *settings) {
		s.fieldValidation = policy
		s.problem("FieldValidation", checkFieldValidation(policy))
	})
}

// Force takes fields away from other field managers that have them, in an apply. Controllers
// should: what they declare of their own objects is right.
func Force() ApplyOption {
	return optionFunc(func(s *settings) { s.force = true })
}

// ConfigurationHash has Apply write a hash of the configuration into an annotation of the object, with
// the configuration. Then the configuration that was applied last is known from the object itself:
// see Apply. The name must not change, or every object is applied once more.
func ConfigurationHash(annotation string) ApplyOption {
	return optionFunc(func(s *settings) {
		s.hash = annotation
		if mistakes := validation.IsQualifiedName(annotation); len(mistakes) > 0 {
			s.problem("ConfigurationHash", fmt.Errorf("%q is not the name of an annotation: %s", annotation, strings.Join(mistakes, "; ")))
		}
	})
}

// Subresource makes the request for a part of the object that is changed on its own: "status",
// for most. Its body is the whole object; for bodies of another kind (a Scale, an Eviction)
// see GetSubresource, CreateSubresource, UpdateSubresource and PatchSubresource.
func Subresource(name string) interface {
	GetOption
	UpdateOption
} {
	return optionFunc(func(s *settings) {
		s.subresource = name
		s.problem("Subresource", checkSubresource(name))
	})
}

// Propagation says what becomes of the objects that the deleted one owns. Default: as the kind
// does it, in the background for most.
func Propagation(policy metav1.DeletionPropagation) interface {
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) { s.propagation = &policy })
}

// GracePeriod is the time that a Pod is given to end, in whole seconds. Zero kills it, and lets
// another one of its name begin while it may still run. Default: as the Pod says.
func GracePeriod(d time.Duration) interface {
	DeleteOption
	DeleteAllOfOption
} {
	return optionFunc(func(s *settings) {
		if d < 0 || d%time.Second != 0 {
			s.problems = append(s.problems, fmt.Errorf("option GracePeriod is %s: it counts in whole seconds, from 0", d))
		}
		s.grace = new(int64(d / time.Second))
	})
}

// settings are what options come to.
type settings struct {
	kind            schema.GroupVersionKind
	fromAPI         bool
	namespace       string
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

	resume   bool // goes on with the present state when the API server has forgotten that of the first page
	problems []error
}

// defaultPageSize is kubectl's, and client-go's pager's.
const defaultPageSize = 500

// newSettings returns the settings that options make, and an error that names every invalid option.
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

// selectLabels adds to what has been selected.
func (s *settings) selectLabels(option string, selector labels.Selector, err error) {
	s.selectors = append(s.selectors, option)
	if err != nil {
		s.problem(option, err)
		return
	}
	if s.labels == nil {
		s.labels = selector
		return
	}
	requirements, _ := selector.Requirements()
	s.labels = s.labels.Add(requirements...)
}
