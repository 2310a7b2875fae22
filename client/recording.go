package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Recording keeps what was asked of the API server, for tests that say which requests a piece of
// code may make. Its method Intercept is an Interceptor; reads that informers answer are no
// requests. The zero value is ready. It is safe for concurrent use.
//
//	var recording client.Recording
//	c, err := c.With(func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
//
// Among several interceptors it sees what those before it have let pass.
type Recording struct {
	mu       sync.Mutex
	requests []Recorded // guarded by mu
}

// Recorded is a request that was made, and what came of it.
type Recorded struct {
	Verb        Verb
	Kind        schema.GroupVersionKind
	Key         kube.Key // of a create with a generated name, with that name
	Subresource string
	DryRun      bool
	// Body is the patch that was sent, or what was applied. Do not change it.
	Body []byte
	// Status is the answer's HTTP status; 0: none came.
	Status int
	// Err is what the caller was told. Nil: it was done.
	Err error
}

// String returns what was asked and what came of it, in the form "verb Kind
// namespace/name/subresource": "update Deployment shop/web/status", "patch Pod shop/web-0 (dry
// run)", "get Secret shop/key: NotFound".
func (r Recorded) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Verb, target{kind: r.Kind, key: r.Key})
	if r.Subresource != "" {
		fmt.Fprintf(&b, "/%s", r.Subresource)
	}
	if r.DryRun {
		b.WriteString(" (dry run)")
	}
	if r.Err != nil {
		fmt.Fprintf(&b, ": %s", ReasonOf(r.Err))
	}
	return b.String()
}

// Intercept is an Interceptor: it sends requests on, and keeps them when the answer is there.
func (r *Recording) Intercept(next RoundTrip) RoundTrip {
	return func(ctx context.Context, request *Request) error {
		err := next(ctx, request)
		r.add(request, err)
		return err
	}
}

func (r *Recording) add(request *Request, err error) {
	recorded := Recorded{
		Verb: request.Verb, Kind: request.Kind, Key: request.Key, Subresource: request.Subresource,
		DryRun: request.DryRun, Body: request.Body, Status: request.Status, Err: err,
	}
	if recorded.Verb == VerbCreate && recorded.Key.Name == "" && err == nil {
		if created, err := meta.Accessor(request.Answer); err == nil {
			recorded.Key.Name = created.GetName()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, recorded)
}

// Requests returns the requests so far, in the order of their answers.
func (r *Recording) Requests() []Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Writes returns those of Requests that were made to change something, dry runs among them.
func (r *Recording) Writes() []Recorded {
	return slices.DeleteFunc(r.Requests(), func(recorded Recorded) bool { return !recorded.Verb.Writes() })
}

// Reset forgets all requests.
func (r *Recording) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}
