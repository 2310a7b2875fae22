package contractmatrix

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// configuration is one way to configure a controller, with the history of its processes and objects: a column of the
// matrix.
type configuration struct {
	name  string
	about string // for describeMatrix

	reconciler bool          // a Reconciler in place of a Handler
	transform  bool          // the controller's informer changes the objects
	noObject   bool          // no primary kind: the Widgets are mapped to keys of another type
	metadata   bool          // the controller's informer retrieves metadata only
	combined   bool          // the controller's informer combines the Retrievers of two namespaces
	forbidden  bool          // with combined: of a third namespace, which nobody may list
	debounce   time.Duration // Config.Queue.Debounce
	poll       bool          // the user's value is outside of the cluster: poll.New finds it
	replaced   bool          // each object was there before under its name, and had failed
	handOver   bool          // two processes; the second one has taken over
	errors     bool          // errors misbehave, and other objects fail with them all the time
	limited    bool          // with combined: the Cluster is limited to the namespaces, which the informer does not name
	// shared is true if another controller of each process, which runs all the time, shares the informers.
	shared bool

	// parts is true if the user's value is in a Part, which a source watches.
	parts bool
	added bool // the source is added with AddSource before Run
	late  bool // the source is added with AddSource after the controller has started
	// twoClusters is true if the Parts are in another cluster. There are Widgets too, which the handler writes.
	twoClusters bool
	// metadataParts is true if the informer of Parts retrieves metadata only.
	metadataParts  bool
	source         func(parts *informer.Informer[*unstructured.Unstructured]) controller.Source
	metadataSource func(parts *informer.Informer[*metav1.PartialObjectMetadata]) controller.Source
	// optional is set if the informer of Parts is optional. It is called after the controller has started.
	optional func(x *cell)
}

// events returns the number of Events about one problem of a key.
func (c configuration) events() int {
	if c.noObject {
		return 0
	}
	return 1
}

// calls returns the number of API calls of run.write.
func (c configuration) calls() int {
	if c.twoClusters {
		return 2
	}
	return 1
}

func owner() source.Owner { return source.Owner{Kind: widgetKind.GroupKind()} }

func ownedParts(parts *informer.Informer[*unstructured.Unstructured]) controller.Source {
	return source.OwnedIn(parts, owner())
}

func mappedParts(parts *informer.Informer[*unstructured.Unstructured]) controller.Source {
	return source.Mapped(parts, func(part *unstructured.Unstructured) []kube.Key { return []kube.Key{kube.KeyOf(part)} })
}

// configurations returns the columns of the matrix.
func configurations() []configuration {
	return []configuration{
		{name: "handler", about: "a Handler, and nothing else"},
		{name: "reconciler", about: "a Reconciler with an informer", reconciler: true},
		{name: "noobject", about: "no primary kind (`controller.NoObject`): the changed object is mapped to a key of another type", noObject: true},
		{name: "debounce", about: "`Config.Queue.Debounce`", debounce: time.Second},
		{name: "owned", about: "the changed object is owned by the handled one: `source.OwnedIn`", parts: true, source: ownedParts},
		{name: "mapped", about: "the changed object is mapped to the handled one: `source.Mapped`", parts: true, source: mappedParts},
		{
			name: "ownerlabel", about: "the changed object has a label with the handled one's name: `source.OwnerLabel`, an informer of metadata only",
			parts: true, metadataParts: true,
			metadataSource: func(parts *informer.Informer[*metav1.PartialObjectMetadata]) controller.Source {
				return source.OwnerLabel(parts, ownerLabel)
			},
		},
		{name: "added", about: "a source of owned objects that was added by `AddSource`", parts: true, added: true, source: ownedParts},
		{
			name: "late", about: "a source of owned objects that is added at run time, in two processes that elect a leader; the second has taken over",
			parts: true, added: true, late: true, handOver: true, source: ownedParts,
		},
		{
			name: "twoclusters", about: "the changed object is in another cluster, in which the handler writes objects of both kinds",
			parts: true, twoClusters: true, source: mappedParts,
		},
		{name: "poll", about: "the changed object is outside of the cluster: `poll.New`", poll: true},
		{name: "combined", about: "the controller's informer combines the Retrievers of two namespaces", combined: true},
		{
			name: "forbidden", about: "the controller's informer combines the Retrievers of three namespaces, one of which is always forbidden",
			combined: true, forbidden: true,
		},
		{
			name: "limited", about: "`kube.Cluster.SetNamespaces` has two namespaces; lists of all are forbidden, and a third one has objects",
			combined: true, limited: true,
		},
		{
			name: "shared", about: "another controller shares the informers (`informer.Shared`), and a source is added at run time; two processes, the second has taken over",
			parts: true, added: true, late: true, handOver: true, shared: true, source: ownedParts,
		},
		{
			name: "optional", about: "the changed object is in an optional informer, which was forbidden at first", parts: true, source: mappedParts,
			optional: (*cell).allowParts,
		},
		{name: "transform", about: "the controller's informer changes objects: `informer.Config.Transform`", transform: true},
		{name: "metadata", about: "the controller's informer retrieves metadata only", metadata: true},
		{name: "replaced", about: "each object was there before under its name, and had failed, been terminal, or had timers", replaced: true},
		{name: "handover", about: "two processes; the second has taken over from one that lost its lease", handOver: true},
		{name: "errors", about: "errors misbehave: nil pointers, `Error()` that panics, errors that wrap themselves, 1 MB of text; other objects return them all the time", errors: true},
	}
}

// forbiddenNamespace is a namespace without objects.
const forbiddenNamespace = "ns-forbidden"

// forbidParts is a hook that forbids lists and watches of Parts.
func forbidParts(req *http.Request, do func() *http.Response) (*http.Response, error) {
	return forbid(req, do, "/parts")
}

// forbidNamespace is a hook that forbids lists and watches of Widgets in one namespace.
func forbidNamespace(req *http.Request, do func() *http.Response) (*http.Response, error) {
	return forbid(req, do, "/namespaces/"+forbiddenNamespace+"/widgets")
}

// forbidAll is a hook that forbids lists and watches of Widgets in all namespaces.
func forbidAll(req *http.Request, do func() *http.Response) (*http.Response, error) {
	return forbid(req, do, group.Version+"/widgets")
}

// forbid forbids reads of paths with this end.
func forbid(req *http.Request, do func() *http.Response, suffix string) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, suffix) {
		resource := suffix[strings.LastIndex(suffix, "/")+1:]
		return apitest.Failure(apierrors.NewForbidden(schema.GroupResource{Group: group.Group, Resource: resource}, "",
			fmt.Errorf("User \"operator\" cannot list resource %q at %s", resource, req.URL.Path))), nil
	}
	return do(), nil
}

// panickingTextError is an error with an Error method that panics.
type panickingTextError struct{ reason *string }

func (p panickingTextError) Error() string { return *p.reason }

// selfWrappingError is an error that wraps itself.
type selfWrappingError struct{}

func (selfWrappingError) Error() string { return "it wraps itself" }

func (w selfWrappingError) Unwrap() error { return w }

// panickingComparisonError is an error with methods Is, As and Unwrap that panic.
type panickingComparisonError struct{}

func (panickingComparisonError) Error() string { return "it panics when it is compared" }

func (panickingComparisonError) Is(error) bool { panic("Is panics") }

func (panickingComparisonError) As(any) bool { panic("As panics") }

func (panickingComparisonError) Unwrap() error { panic("Unwrap panics") }

// wickedErrors returns misbehaving errors as user code may return them.
func wickedErrors() []error {
	var status *apierrors.StatusError
	var requeue *controller.RequeueError
	return []error{
		status, requeue,
		panickingTextError{},
		selfWrappingError{},
		panickingComparisonError{},
		errors.New(strings.Repeat("a very long text ", 1<<16)),
		errors.Join(status, errors.New("joined")),
	}
}

// showsPartsOfObjects reports whether an informer of the configuration has other content than the API server.
func (c configuration) showsPartsOfObjects() bool {
	return c.metadata || c.metadataParts || c.transform
}
