package kube

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/observers"
)

// Call is one request to the API server by any client that uses a Cluster's HTTPClient or RESTConfig.
type Call struct {
	// Verb is Kubernetes' verb: get, list, watch, create, update, patch, delete or deletecollection. It is empty for a
	// path without a resource (/version, /openapi, ...).
	Verb string
	// Resource is the resource in the path, and Subresource the subresource below the object.
	Resource    schema.GroupVersionResource
	Subresource string
	// Kind is the resource's kind if the Cluster knows it (Cluster.Resource), otherwise empty.
	Kind schema.GroupVersionKind
	// Key is the key in the path. The name is empty for a create or a list, the namespace for cluster-scoped resources
	// and for all namespaces.
	Key Key
	// Server is the URL of the API server.
	Server string
	// DryRun is true if the request must not be persisted.
	DryRun bool
	// Manager is the field manager of a create, update or patch: the parameter fieldManager, or the name that the API
	// server takes from the User-Agent without it.
	Manager string
	// Request is the body of an update or a patch, in the format RequestType. It is nil for connections to something
	// behind the API server. It must not be changed.
	Request     []byte
	RequestType string
	// Began is the time when the request was sent.
	Began time.Time

	// The following fields are set when the call has ended.

	// Duration is the time until the response header, or for a write with a Response until the end of its body.
	Duration time.Duration
	// Status is the response's HTTP status, or 0 without a response; then Err is set.
	Status int
	// Err is the reason why there is no complete response. A write may have succeeded nevertheless.
	Err error
	// Response is the response body of a successful write, in the format ContentType. It is nil for connections to
	// something behind the API server: exec, attach, portforward, proxy. It must not be changed.
	Response    []byte
	ContentType string

	hidden *apiobject.HiddenFields // of the Cluster
}

// Hides is Cluster.Hides for the call's object. It returns true for all fields while the Kind is not known.
func (c Call) Hides(path string) bool {
	hidden := c.hidden
	if hidden == nil {
		hidden = &apiobject.HiddenFields{}
	}
	return c.Kind.Kind == "" || hidden.Hides(c.Kind.GroupKind(), path)
}

// IsWrite reports whether the call is a write.
func (c Call) IsWrite() bool {
	switch c.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !c.DryRun
	}
	return false
}

// Succeeded reports whether the API server has done what the request asked for. For exec and port-forward that means
// that the connection is established.
func (c Call) Succeeded() bool {
	return c.Err == nil && (c.Status >= 200 && c.Status < 300 || c.Status == http.StatusSwitchingProtocols)
}

// connects reports whether the response comes from something behind the API server. Such a response is not an object,
// and may be endless or a connection.
func (c Call) connects() bool {
	what, _, _ := strings.Cut(c.Subresource, "/")
	switch what {
	case "attach", "exec", "portforward", "proxy":
		return true
	}
	return c.Status == http.StatusSwitchingProtocols
}

// CallObserver observes the requests with its context.
type CallObserver interface {
	// CallBegan is called before a request is sent. It returns the context of the request: ctx, or one derived from it.
	CallBegan(ctx context.Context, call Call) context.Context
	// CallEnded is called with that context when the response has arrived (for a write including the body), and before
	// the client receives it.
	CallEnded(ctx context.Context, call Call)
}

type callObserverKey struct{}

// ObserveCalls returns a context with which every request through a Cluster is reported to observer, and then to the
// observers of ctx. Controllers use it for handlers' contexts.
func ObserveCalls(ctx context.Context, observer CallObserver) context.Context {
	ctx = observers.Mark(ctx)
	if outer, ok := ctx.Value(callObserverKey{}).(CallObserver); ok {
		observer = callObservers{observer, outer}
	}
	return context.WithValue(ctx, callObserverKey{}, observer)
}

// underCallKey marks the contexts of requests that have been reported to observers.
type underCallKey struct{}

type callObservers [2]CallObserver

func (o callObservers) CallBegan(ctx context.Context, call Call) context.Context {
	return o[1].CallBegan(o[0].CallBegan(ctx, call), call)
}

func (o callObservers) CallEnded(ctx context.Context, call Call) {
	o[0].CallEnded(ctx, call)
	o[1].CallEnded(ctx, call)
}

// callTransport reports calls to observers, and sends no write after leadership was lost.
type callTransport struct {
	// Immutable.
	cluster *Cluster
	next    http.RoundTripper // client-go's transport with the wrappers of the user's config
	roots   *rootsTransport   // that client-go's transport has become
	tokens  *tokenFile
	terms   *leadership.Transport // sends the writes of terms of leadership
	custom  bool                  // the user's config has a transport or a wrapper
}

func newCallTransport(
	cluster *Cluster, base http.RoundTripper, wrap func(http.RoundTripper) http.RoundTripper,
) *callTransport {
	custom := wrap != nil || cluster.config.Transport != nil
	if wrap == nil {
		wrap = func(rt http.RoundTripper) http.RoundTripper { return rt }
	}
	roots, outer := newRootsTransport(cluster.config, base), wrap
	wrap = func(rt http.RoundTripper) http.RoundTripper {
		return outer(apiobject.Measured{RoundTripper: rt, By: cluster.observers})
	}
	next := wrap(roots)
	return &callTransport{
		cluster: cluster, next: next, roots: roots, tokens: &tokenFile{path: cluster.config.BearerTokenFile},
		terms:  &leadership.Transport{Base: roots.current, Wrap: wrap, Next: next},
		custom: custom,
	}
}

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (t *callTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections closes idle connections below the wrappers of the user's config, which may hide them.
func (t *callTransport) CloseIdleConnections() { t.roots.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *callTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	observer, isObserved := ctx.Value(callObserverKey{}).(CallObserver)
	if ctx.Value(underCallKey{}) != nil {
		// A request through another Cluster that was created from this one's RESTConfig is one call, and was reported
		// by that Cluster.
		isObserved = false
	}
	term := leadership.Of(ctx)
	// An informer that was started in an earlier term continues to read with the context of that term.
	if term != nil && t.cluster.term.Load() != term && term.Err() == nil {
		t.cluster.term.Store(term)
	}
	switch {
	case reads(req, t.cluster.basePath):
		term = nil // reads may continue
	case !isObserved && ctx.Value(underCallKey{}) == nil:
		t.cluster.checkStray(req, term)
	}
	if err := t.cluster.waitForLimits(req, term); err != nil { //nolint:contextcheck // it waits with the one of req
		return nil, leadership.NotSent(req, err) // not a call: observers are not notified
	}
	if !isObserved && term == nil {
		return t.sendInTime(req, Call{}, nil)
	}
	call := callOf(req, t.cluster.basePath)
	if isObserved && (call.Verb == "update" || call.Verb == "patch") && !call.connects() {
		call.Request, call.RequestType = requestBody(req), req.Header.Get("Content-Type")
	}
	call.Server, call.hidden = t.cluster.server, t.cluster.hidden
	call.Kind = t.cluster.knownKind(call.Resource)
	if call.DryRun {
		term = nil
	}
	if term != nil {
		if err := term.Err(); err != nil {
			return nil, leadership.NotSent(req, err) // not a call: observers are not notified
		}
	}
	if !isObserved {
		return t.sendInTime(req, call, term)
	}
	under := observer.CallBegan(ctx, call)
	resp, err := t.sendInTime(req.WithContext(context.WithValue(under, underCallKey{}, true)), call, term)
	if call.Err = err; err == nil {
		call.Status, call.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
		if call.IsWrite() && call.Succeeded() && !call.connects() {
			// The client gets the same: the bytes that were read, and the read error.
			call.Response, call.Err = io.ReadAll(resp.Body)
			rest := io.Reader(bytes.NewReader(call.Response))
			if call.Err != nil {
				rest = io.MultiReader(rest, failing{call.Err})
			}
			resp.Body = body{rest, resp.Body}
		}
	}
	call.Duration = time.Since(call.Began)
	observer.CallEnded(under, call)
	return resp, err
}

// reads reports whether a request changes nothing. A connection into a Pod may change something, and a WebSocket opens
// it with GET.
func reads(req *http.Request, basePath string) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		return false
	}
	switch last := path.Base(req.URL.Path); last {
	case "attach", "exec", "portforward":
		return callOf(req, basePath).Subresource != last
	}
	return true
}

// body is the rest of a response body.
type body struct {
	io.Reader
	io.Closer
}

// failing is a reader that always returns an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// callOf returns the call of a request, from its path and method. Paths are parsed as in
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
	// "namespaces/a" and "namespaces/a/status" are requests for the Namespace itself.
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
	switch call.Verb {
	case "create", "update", "patch":
		userAgent := req.Header["User-Agent"]
		if len(userAgent) == 0 {
			userAgent = []string{"Go-http-client"} // of net/http
		}
		call.Manager = cmp.Or(query.Get("fieldManager"), apiobject.FieldManager(userAgent[0]))
	}
	return call
}

// asksForDryRun reports whether a deletion is a dry run. Its options are in its body.
func asksForDryRun(req *http.Request) bool {
	// metav1.DryRunAll is the only valid value. No other option can contain it, in JSON or protobuf.
	return req.Method == http.MethodDelete && bytes.Contains(requestBody(req), []byte(metav1.DryRunAll))
}

// requestBody returns a copy of a request's body, or nil if the body can be read only once. client-go's bodies can be
// read again.
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

// knownKind returns the kind of a resource, if the Cluster has discovered it in this or another version.
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
