// Package requestlog records the requests of clients, for tests of this module. Programs write an Interceptor.
package requestlog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Recording stores requests, for tests of the requests that a piece of code makes. Its method Intercept is an
// Interceptor; reads from informers are not requests. The zero value is ready. It is safe for concurrent use. It sees
// the requests after the interceptors before it.
type Recording struct {
	mu       sync.Mutex
	requests []Recorded // guarded by mu
}

// Recorded is a request and its result.
type Recorded struct {
	Verb        client.Verb
	Kind        schema.GroupVersionKind
	Key         kube.Key // of a create with a generated name, with that name
	Subresource string
	DryRun      bool
	// Body is the patch or the configuration of an apply. It must not be changed.
	Body []byte
	// Status is the HTTP status of the response, or 0 without a response.
	Status int
	// Err is the error that the caller got, or nil.
	Err error
}

// String returns the request and its result in the form "verb Kind namespace/name/subresource": "update Deployment
// shop/web/status", "patch Pod shop/web-0 (dry run)", "get Secret shop/key: NotFound".
func (r Recorded) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Verb, r.Kind.Kind)
	switch {
	case r.Key.Name != "":
		fmt.Fprintf(&b, " %s", r.Key)
	case r.Key.Namespace != "":
		fmt.Fprintf(&b, " in %s", r.Key.Namespace)
	}
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if r.DryRun {
		b.WriteString(" (dry run)")
	}
	if r.Err != nil {
		fmt.Fprintf(&b, ": %s", cmp.Or(apierrors.ReasonForError(r.Err), "error"))
	}
	return b.String()
}

// Intercept is an Interceptor: it forwards requests, and stores them after the response.
func (r *Recording) Intercept(next client.RoundTrip) client.RoundTrip {
	return func(ctx context.Context, request *client.Request) error {
		err := next(ctx, request)
		r.add(request, err)
		return err
	}
}

func (r *Recording) add(request *client.Request, err error) {
	recorded := Recorded{
		Verb: request.Verb, Kind: request.Kind, Key: request.Key, Subresource: request.Subresource,
		DryRun: request.DryRun, Body: request.Body, Status: request.Status, Err: err,
	}
	if recorded.Verb == client.VerbCreate && recorded.Key.Name == "" && err == nil {
		if created, err := meta.Accessor(request.Response); err == nil {
			recorded.Key.Name = created.GetName()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, recorded)
}

// Requests returns the requests in the order of their responses.
func (r *Recording) Requests() []Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Writes returns the requests other than reads, including dry runs.
func (r *Recording) Writes() []Recorded {
	return slices.DeleteFunc(r.Requests(), func(recorded Recorded) bool { return !recorded.Verb.IsWrite() })
}

// Reset drops all requests.
func (r *Recording) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}
