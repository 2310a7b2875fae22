package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Call is one request to the API server, whichever client made it: any that uses a Cluster's
// HTTPClient or RESTConfig.
type Call struct {
	// Verb is what Kubernetes calls it: get, list, watch, create, update, patch, delete or
	// deletecollection. Empty for a path that names no resource (/version, /openapi, ...).
	Verb string
	// Resource is what the path names, and Subresource what it names below the object.
	Resource    schema.GroupVersionResource
	Subresource string
	// Kind is the resource's, when the Cluster has learnt it (Cluster.Resource). Otherwise empty.
	Kind schema.GroupVersionKind
	// Key is what the path names: the name is empty for a create or a list, the namespace
	// for what is in none.
	Key Key
	// DryRun is true when the request asks that nothing be kept.
	DryRun bool
	// Request is the body of an update or a patch, as RequestType says. Nil for what connects to
	// something behind the API server. Do not change it.
	Request     []byte
	RequestType string
	// Began is when the request was sent.
	Began time.Time

	// The following are set when the call has ended.

	// Duration is the time to the answer's header, for a write with an Answer to its end.
	Duration time.Duration
	// Status is the answer's HTTP status. 0: none came, see Err.
	Status int
	// Err is why no (whole) answer came. A write may have been done all the same.
	Err error
	// Answer is the body of the answer to a write that was done, as ContentType says. Nil for
	// what connects to something behind the API server: exec, attach, portforward, proxy. Do
	// not change it.
	Answer      []byte
	ContentType string
}

// Writes reports whether the call was made to change something.
func (c Call) Writes() bool {
	switch c.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !c.DryRun
	}
	return false
}

// Done reports whether the API server has done what was asked. For a connection that was asked
// for (exec, port-forward) that is: whether there is one.
func (c Call) Done() bool {
	return c.Err == nil && (c.Status >= 200 && c.Status < 300 || c.Status == http.StatusSwitchingProtocols)
}

// connects reports whether the answer comes from behind the API server, and is no object: it
// may have no end, or be a connection.
func (c Call) connects() bool {
	what, _, _ := strings.Cut(c.Subresource, "/")
	switch what {
	case "attach", "exec", "portforward", "proxy":
		return true
	}
	return c.Status == http.StatusSwitchingProtocols
}

// CallObserver hears of the requests that are made under its context.
type CallObserver interface {
	// CallBegan is called before a request is sent. The context that it returns is the
	// request's: ctx, or one made of it.
	CallBegan(ctx context.Context, call Call) context.Context
	// CallEnded is called with that context when the answer is there: of a write its whole
	// body, and before the client sees it.
	CallEnded(ctx context.Context, call Call)
}

type callObserverKey struct{}

// ObserveCalls returns a context under which every request through a Cluster is told to
// observer, and then to those of ctx. Controllers do so for handlers' contexts.
func ObserveCalls(ctx context.Context, observer CallObserver) context.Context {
	if outer, ok := ctx.Value(callObserverKey{}).(CallObserver); ok {
		observer = callObservers{observer, outer}
	}
	return context.WithValue(ctx, callObserverKey{}, observer)
}

// underCallKey marks the contexts of requests that observers have been told of.
type underCallKey struct{}

type callObservers [2]CallObserver

func (o callObservers) CallBegan(ctx context.Context, call Call) context.Context {
	return o[1].CallBegan(o[0].CallBegan(ctx, call), call)
}

func (o callObservers) CallEnded(ctx context.Context, call Call) {
	o[0].CallEnded(ctx, call)
	o[1].CallEnded(ctx, call)
}

// callTransport tells observers of calls, and lets no write out after leadership was lost.
type callTransport struct {
	next    http.RoundTripper
	cluster *Cluster
}

// WrappedRoundTripper is how client-go looks for the transport below.
func (t callTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t callTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	observer, observed := ctx.Value(callObserverKey{}).(CallObserver)
	if ctx.Value(underCallKey{}) != nil {
		// Another Cluster, made of this one's RESTConfig, has sent the request through here: it
		// was told of it, and is one call.
		return t.next.RoundTrip(req)
	}
	lost := LeadershipLost(ctx)
	if !observed && lost == nil {
		return t.next.RoundTrip(req)
	}
	call := callOf(req, t.cluster.basePath)
	if observed && (call.Verb == "update" || call.Verb == "patch") && !call.connects() {
		call.Request, call.RequestType = requestBody(req), req.Header.Get("Content-Type")
	}
	call.Kind = t.cluster.knownKind(call.Resource)
	select {
	case <-lost:
		if call.Writes() {
			if req.Body != nil {
				_ = req.Body.Close() // a RoundTripper's duty; nothing was read
			}
			return nil, fmt.Errorf("%s %s: not sent: %w", call.Verb, req.URL.Path, ErrLeadershipLost)
		}
	default:
	}
	if !observed {
		return t.next.RoundTrip(req)
	}
	under := observer.CallBegan(ctx, call)
	resp, err := t.next.RoundTrip(req.WithContext(context.WithValue(under, underCallKey{}, true)))
	if err == nil {
		call.Status, call.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
		if call.Writes() && call.Done() && !call.connects() {
			// The client gets the same: what was read, and why no more could be.
			call.Answer, call.Err = io.ReadAll(resp.Body)
			rest := io.Reader(bytes.NewReader(call.Answer))
			if call.Err != nil {
				rest = io.MultiReader(rest, failing{call.Err})
			}
			resp.Body = body{rest, resp.Body}
		}
	} else {
		call.Err = err
	}
	call.Duration = time.Since(call.Began)
	observer.CallEnded(under, call)
	return resp, err
}

// body is what is left to read of an answer.
type body struct {
	io.Reader
	io.Closer
}

// failing is a reader that can go no further.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// callOf reads from a request what it asks for. The paths are those of
// k8s.io/apiserver/pkg/endpoints/request.RequestInfoFactory.
func callOf(req *http.Request, basePath string) Call {
	call := Call{Began: time.Now()}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(req.URL.Path, basePath), "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		call.Resource.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		call.Resource.Group, call.Resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return call
	}
	// "namespaces/a" and "namespaces/a/status" name the namespace itself.
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		call.Key.Namespace, parts = parts[1], parts[2:]
	}
	call.Resource.Resource = parts[0]
	if len(parts) > 1 {
		call.Key.Name = parts[1]
	}
	if len(parts) > 2 {
		call.Subresource = strings.Join(parts[2:], "/")
	}
	query := req.URL.Query()
	call.DryRun = query.Has("dryRun") || asksForDryRun(req)
	call.Verb = verbOf(req.Method, call.Key.Name != "", query.Get("watch"))
	return call
}

// asksForDryRun reads a deletion's options, which travel in its body.
func asksForDryRun(req *http.Request) bool {
	// The one value that there is (metav1.DryRunAll); no other option can contain it, in JSON
	// or in protobuf.
	return req.Method == http.MethodDelete && bytes.Contains(requestBody(req), []byte(metav1.DryRunAll))
}

// requestBody returns a request's body, which it leaves to be sent; nil when that can be read
// once only. client-go's can be read again.
func requestBody(req *http.Request) []byte {
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	encoded, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	return encoded
}

func verbOf(method string, named bool, watch string) string {
	switch {
	case method == http.MethodGet && (watch == "true" || watch == "1"):
		return "watch"
	case method == http.MethodGet && named:
		return "get"
	case method == http.MethodGet:
		return "list"
	case method == http.MethodPost:
		return "create"
	case method == http.MethodPut:
		return "update"
	case method == http.MethodPatch:
		return "patch"
	case method == http.MethodDelete && named:
		return "delete"
	case method == http.MethodDelete:
		return "deletecollection"
	}
	return ""
}

// knownKind returns the kind of a resource, if it has been asked for, in this version or in
// another one.
func (c *Cluster) knownKind(resource schema.GroupVersionResource) schema.GroupVersionKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind := kindIn(c.resources[resource.GroupVersion()], resource); !kind.Empty() {
		return kind
	}
	for gv, known := range c.resources {
		if gv.Group == resource.Group {
			if kind := kindIn(known, resource); !kind.Empty() {
				return kind
			}
		}
	}
	return schema.GroupVersionKind{}
}

func kindIn(known []metav1.APIResource, resource schema.GroupVersionResource) schema.GroupVersionKind {
	for _, r := range known {
		if r.Name == resource.Resource {
			return resource.GroupVersion().WithKind(r.Kind)
		}
	}
	return schema.GroupVersionKind{}
}
