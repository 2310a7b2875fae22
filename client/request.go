package client

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Verb is the verb of a request, as in Kubernetes' audit log and RBAC rules, where an apply is a patch.
type Verb string

// The verbs.
const (
	VerbGet              Verb = "get"
	VerbList             Verb = "list"
	VerbWatch            Verb = "watch"
	VerbCreate           Verb = "create"
	VerbUpdate           Verb = "update"
	VerbPatch            Verb = "patch"
	VerbApply            Verb = "apply"
	VerbDelete           Verb = "delete"
	VerbDeleteCollection Verb = "deletecollection"
)

// IsWrite reports whether the verb changes objects.
func (v Verb) IsWrite() bool { return v != VerbGet && v != VerbList && v != VerbWatch }

// Request is a request to the API server, as interceptors see it. They may change it before it is sent;
// afterwards it contains the response. Reads from informers are not requests.
type Request struct {
	Verb Verb
	// Kind and Resource are those of the object. Key is its key; the Name is empty for collections, and for an
	// object that is created with a generated name.
	Kind        schema.GroupVersionKind
	Resource    kube.Resource
	Key         kube.Key
	Subresource string

	// Object is the object to create or update. It belongs to the caller and must not be changed. To send
	// another one, replace it.
	Object kube.Object
	// PatchType and Body are a patch, or the configuration of an apply.
	PatchType types.PatchType
	Body      []byte
	// Delete are the options of the deletion of an object or a collection.
	Delete *metav1.DeleteOptions
	// DryRun, FieldOwner, FieldValidation and Force (of an apply) are options of a write.
	DryRun          bool
	FieldOwner      string
	FieldValidation string
	Force           bool
	// List are the options of a watch, and of reading or deleting a collection; a get has only its ResourceVersion, the
	// minimum. All set options are sent. An option that the verb does not have is an error before the request.
	List metav1.ListOptions

	// Response receives the decoded response. Nil: the response is not decoded. An interceptor that answers a
	// request fills it; for a list it is of a type of this package that JSON can be decoded into.
	Response runtime.Object
	// Status is the HTTP status of the response; 0 before it, and without a response. The result of an apply
	// without a status is not stored: the next apply makes a request again.
	Status int
	// Stream is the response of a watch.
	Stream watch.Interface

	model any // of the type of the requested objects; it determines the format of the response
}

// isCollection reports whether the request is for several objects of a kind.
func (r *Request) isCollection() bool {
	return r.Verb == VerbList || r.Verb == VerbWatch || r.Verb == VerbDeleteCollection
}

// RoundTrip sends a request and waits for the response.
type RoundTrip func(ctx context.Context, r *Request) error

// Interceptor wraps the sending of requests: it may inspect, change or reject them, or return a response itself.
//
//	func noDeletions(next client.RoundTrip) client.RoundTrip {
//		return func(ctx context.Context, r *client.Request) error {
//			if r.Verb == client.VerbDelete {
//				return errors.New("nothing is deleted here")
//			}
//			return next(ctx, r)
//		}
//	}
//
// It must be safe for concurrent use.
type Interceptor func(next RoundTrip) RoundTrip

// On returns an Interceptor that applies intercept to requests with these verbs only.
func On(intercept Interceptor, verbs ...Verb) Interceptor {
	return func(next RoundTrip) RoundTrip {
		inner := intercept(next)
		return func(ctx context.Context, r *Request) error {
			if slices.Contains(verbs, r.Verb) {
				return inner(ctx, r)
			}
			return next(ctx, r)
		}
	}
}
