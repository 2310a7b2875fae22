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

// Verb is what a request asks for, in the words of Kubernetes' audit log and RBAC rules. Apply
// is a patch for both.
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

// Writes reports whether requests of the verb are made to change something.
func (v Verb) Writes() bool { return v != VerbGet && v != VerbList && v != VerbWatch }

// Request is one request to the API server, as interceptors see it. Before it is sent they may
// change it; after it, what was answered is in it. Reads that an informer answers are no
// requests.
type Request struct {
	Verb Verb
	// Kind and Resource are what is requested. Key names the object; its Name is empty for
	// collections, and for an object that is created with a generated name.
	Kind        schema.GroupVersionKind
	Resource    kube.Resource
	Key         kube.Key
	Subresource string

	// Object is what is created or updated: the caller's, to be read only. Replace it in order
	// to send another.
	Object kube.Object
	// PatchType and Body are a patch, or what is applied.
	PatchType types.PatchType
	Body      []byte
	// Delete are the options of a deletion, of one object or of a collection.
	Delete *metav1.DeleteOptions
	// DryRun, FieldOwner, FieldValidation and Force (of an apply) are those of a write.
	DryRun          bool
	FieldOwner      string
	FieldValidation string
	Force           bool
	// List are the options of what reads or deletes collections, and of a watch. All that are set are
	// sent. Options that the verb does not have are an error, which comes before the request is sent.
	List metav1.ListOptions
	// GetVersion is the resourceVersion from which on a get may be answered.
	GetVersion string

	// Answer receives the answer: what it points to is decoded from it. Nil: the answer is not
	// read. An interceptor that answers itself fills it; that of a list is of a type of this
	// package, into which JSON can be decoded.
	Answer runtime.Object
	// Status is the HTTP status of the answer; 0 before it, and when none came. An apply that an
	// interceptor answers without one is not remembered: the next one is sent again.
	Status int
	// Stream is the answer of a watch.
	Stream watch.Interface

	model any // of the type of the objects that are asked for, which decides in which form they come
}

// isCollection reports whether the request is for all objects of a kind, or a selection.
func (r *Request) isCollection() bool {
	return r.Verb == VerbList || r.Verb == VerbWatch || r.Verb == VerbDeleteCollection
}

// RoundTrip sends a request and waits for the answer.
type RoundTrip func(ctx context.Context, r *Request) error

// Interceptor wraps what sends requests: it may look at them, change them, answer them itself,
// or refuse them.
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

// On is an Interceptor of some verbs only: intercept sees their requests, and the others pass.
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
