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
)

// Option changes how a request is made. Each function of this package says which it takes, and
// refuses the others.
type Option func(*settings)

// named notes which options were given.
func named(name string, set func(*settings)) Option {
	return func(s *settings) {
		set(s)
		s.given = append(s.given, name)
	}
}

// OfKind names the kind of objects whose Go type does not tell: unstructured ones and those
// that are metadata only.
func OfKind(kind schema.GroupVersionKind) Option {
	return named("OfKind", func(s *settings) {
		s.kind = kind
		if kind.Kind == "" || kind.Version == "" {
			s.problems = append(s.problems, fmt.Errorf("option OfKind names the kind %q in %q: both a kind and a version are needed", kind.Kind, kind.GroupVersion()))
		}
	})
}

// FromAPI asks the API server, whatever informers the client has.
func FromAPI() Option { return named("FromAPI", func(s *settings) { s.fromAPI = true }) }

// InNamespace selects the objects of one namespace. Default: Config.Namespace;
// without that, all namespaces.
func InNamespace(namespace string) Option {
	return named("InNamespace", func(s *settings) { s.namespace = namespace })
}

// WithLabels selects objects that have all these labels.
func WithLabels(set map[string]string) Option {
	return named("WithLabels", func(s *settings) {
		selector, err := labels.ValidatedSelectorFromSet(set)
		s.selectLabels("WithLabels", selector, err)
	})
}

// LabelSelector selects objects by label, as in "app=web,tier!=cache".
func LabelSelector(selector string) Option {
	return named("LabelSelector", func(s *settings) {
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
func FieldSelector(selector string) Option {
	return named("FieldSelector", func(s *settings) {
		parsed, err := fields.ParseSelector(selector)
		if s.fields != nil && err == nil {
			parsed = fields.AndSelectors(s.fields, parsed)
		}
		s.fields = parsed
		s.problem("FieldSelector", err)
	})
}

// PageSize is how many objects the API server sends in one answer. Default 500, as kubectl
// has it; 0 asks for all at once.
func PageSize(objects int64) Option {
	return named("PageSize", func(s *settings) {
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
func NotOlderThan(resourceVersion string) Option {
	return named("NotOlderThan", func(s *settings) { s.notOlderThan, s.fromAPI = resourceVersion, true })
}

// IfUnchanged demands that the object has still the resourceVersion which the caller's has: that
// the cache was not stale at all. Otherwise the answer is ErrChanged.
//
// It is stricter than most acts need, because every heartbeat in a status changes the
// resourceVersion; a check of what matters in the live object disturbs less.
func IfUnchanged() Option { return named("IfUnchanged", func(s *settings) { s.unchanged = true }) }

// IfAbsent lets Apply create the object, and never change one that exists: the error is ErrExists
// then. The API server decides, so two clients cannot both create the object, and no existing object
// is changed.
//
// The apply has a resourceVersion that no object has: a server that compares resourceVersions
// refuses it for an object that exists. kube-apiserver compares them for its own kinds and for custom
// resources; an aggregated API server may not. So for a kind whose group is not one of Kubernetes
// the object is read first, and on an aggregated API server which ignores resourceVersions, an
// object that appears between the read and the apply is changed; then the Outcome is Updated.
func IfAbsent() Option { return named("IfAbsent", func(s *settings) { s.absent = true }) }

// DryRun asks the API server to check everything, admission included, and to keep nothing.
func DryRun() Option { return named("DryRun", func(s *settings) { s.dryRun = true }) }

// FieldOwner names the field manager of this write. Default: Config.FieldOwner.
func FieldOwner(name string) Option {
	return named("FieldOwner", func(s *settings) {
		s.fieldOwner = name
		s.problem("FieldOwner", checkFieldOwner(name))
	})
}

// FieldValidation is Config.FieldValidation of this write.
func FieldValidation(policy string) Option {
	return named("FieldValidation", func(s *settings) {
		s.fieldValidation = policy
		s.problem("FieldValidation", checkFieldValidation(policy))
	})
}

// Force takes fields away from other field managers that have them, in an apply. Controllers
// should: what they declare of their own objects is right.
func Force() Option { return named("Force", func(s *settings) { s.force = true }) }

// ConfigurationHash has Apply write a hash of the configuration into an annotation of the object, with
// the configuration. Then the configuration that was applied last is known from the object itself:
// see Apply. The name must not change, or every object is applied once more.
func ConfigurationHash(annotation string) Option {
	return named("ConfigurationHash", func(s *settings) {
		s.hash = annotation
		if mistakes := validation.IsQualifiedName(annotation); len(mistakes) > 0 {
			s.problem("ConfigurationHash", fmt.Errorf("%q is not the name of an annotation: %s", annotation, strings.Join(mistakes, "; ")))
		}
	})
}

// Subresource makes the request for a part of the object that is changed on its own: "status",
// for most. Its body is the whole object; for bodies of another kind (a Scale, an Eviction)
// see GetSubresource, CreateSubresource, UpdateSubresource and PatchSubresource.
func Subresource(name string) Option {
	return named("Subresource", func(s *settings) {
		s.subresource = name
		s.problem("Subresource", checkSubresource(name))
	})
}

// Precondition lets an object be deleted only if its uid and resourceVersion are those of obj;
// one that is empty is not compared.
func Precondition(uid types.UID, resourceVersion string) Option {
	return named("Precondition", func(s *settings) { s.uid, s.version = uid, resourceVersion })
}

// Propagation says what becomes of the objects that the deleted one owns. Default: as the kind
// does it, in the background for most.
func Propagation(policy metav1.DeletionPropagation) Option {
	return named("Propagation", func(s *settings) { s.propagation = &policy })
}

// GracePeriod is the time that a Pod is given to end, in whole seconds. Zero kills it, and lets
// another one of its name begin while it may still run. Default: as the Pod says.
func GracePeriod(d time.Duration) Option {
	return named("GracePeriod", func(s *settings) {
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
	version         string
	propagation     *metav1.DeletionPropagation
	grace           *int64
	wait            waitSettings // see wait.go

	resume   bool     // goes on with the present state when the API server has forgotten that of the first page
	given    []string // the options' names
	problems []error
}

// defaultPageSize is kubectl's, and client-go's pager's.
const defaultPageSize = 500

// newSettings returns what options come to; of them, only those of allowed have a meaning:
// what was asked for must not be left out in silence.
func newSettings(options []Option, allowed ...string) (settings, error) {
	s := settings{pageSize: defaultPageSize}
	for _, option := range options {
		if option == nil {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		option(&s)
	}
	for _, name := range s.given {
		if !slices.Contains(allowed, name) {
			s.problems = append(s.problems, fmt.Errorf("option %s has no meaning here: possible are %q", name, allowed))
		}
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
