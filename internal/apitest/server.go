// Package apitest is the API server of this project's own tests: internal/apiserver, with requests that fail, wait or
// are recorded, with held watches, with backups, and with objects that another client changes.
//
// It works in a bubble of testing/synctest: it has no goroutines, and holds no lock while a hook runs. Requests for
// discovery are never recorded, hooked or failed, because clients hold mutexes meanwhile.
//
// Namespaces exist without objects, and no object exists at first, so that a test that lists a kind names all objects
// of it; package simulation has the objects that each cluster has. Everything else is as in the real server: objects
// are validated, updates conflict, and the status is written by its subresource only.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Hook handles a request in place of the server. do processes the request as the server would, also after the request's
// context has ended: a client that gives up cannot know what the server does. A Hook may call do or not.
type Hook func(req *http.Request, do func() *http.Response) (*http.Response, error)

// Server is an API server in memory, and the http.RoundTripper of its clients. Create it with New.
type Server struct {
	api   *apiserver.Server
	kinds []*apiserver.Kind

	mu       sync.Mutex
	hook     Hook              // guarded by mu
	failures map[string]error  // by verb; guarded by mu
	stale    *apiserver.Server // serves lists; guarded by mu
	requests []string          // verb and path of every request except discovery and watches; guarded by mu
	verbs    map[string]int    // numbers of requests; guarded by mu
}

// New returns an empty server that serves kinds. It panics if they cannot be served together.
func New(kinds ...*apiserver.Kind) *Server {
	api, err := apiserver.New(apiserver.Config{Kinds: kinds, NamespacesExist: true})
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	return &Server{api: api, kinds: kinds, failures: map[string]error{}, verbs: map[string]int{}}
}

// Fork returns a server with the same objects, which changes independently from then on. It has no hook and no
// failures.
func (s *Server) Fork() *Server {
	return &Server{api: s.api.Fork(), kinds: s.kinds, failures: map[string]error{}, verbs: map[string]int{}}
}

// Config returns the config of a client of the server. userAgent is also the name of the client's field manager.
func (s *Server) Config(userAgent string) *rest.Config {
	return &rest.Config{Host: "http://apitest.invalid", Transport: s, UserAgent: userAgent, QPS: -1}
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	verb := verbOf(req)
	if verb == "" {
		return s.api.Transport().RoundTrip(req)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.verbs[verb]++
	if verb != "watch" {
		s.requests = append(s.requests, req.Method+" "+req.URL.Path)
	}
	hook, failure, api := s.hook, s.failures[verb], s.api
	if s.stale != nil && verb == "list" {
		api = s.stale
	}
	s.mu.Unlock()
	if failure != nil {
		if status := apierrors.APIStatus(nil); errors.As(failure, &status) {
			return Failure(&apierrors.StatusError{ErrStatus: status.Status()}), nil
		}
		return nil, failure
	}
	if hook == nil {
		return api.Transport().RoundTrip(req)
	}
	return hook(req, func() *http.Response { return process(api, req, verb == "watch") })
}

// verbOf returns the verb of a request as in Kubernetes' rules of access, or "" for discovery.
func verbOf(req *http.Request) string {
	path := apiserver.ParsePath(req.URL.Path)
	if path == (apiserver.Path{}) {
		return ""
	}
	return path.Verb(req)
}

// Hook makes the server call hook for every request except discovery. Hook(nil) removes the hook.
func (s *Server) Hook(hook Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Fail makes requests with a verb of Kubernetes' rules of access ("get", "list", "watch", "create", ...) fail with err,
// until err is nil: with its Status, or as a broken connection if it has none. The hook is not called for them.
func (s *Server) Fail(verb string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[verb] = err
}

// Requests returns "VERB path" of every request since the last call, except discovery and watches.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// Count returns the number of requests with a verb of Kubernetes' rules of access ("get", "list", "watch", "create",
// ...).
func (s *Server) Count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verbs[verb]
}

// Watches returns the number of open watches.
func (s *Server) Watches() int { return s.api.OpenWatches() }

// HoldWatches makes the watches of a resource, open ones and later ones, send no later changes and no bookmarks until
// ReleaseWatches.
func (s *Server) HoldWatches(resource string) { s.api.HoldWatches(s.resource(resource)) }

// ReleaseWatches makes the watches of a resource send the held changes, and later ones.
func (s *Server) ReleaseWatches(resource string) { s.api.ReleaseWatches(s.resource(resource)) }

// ReleaseOne makes the held watches of a resource send one more event.
func (s *Server) ReleaseOne(resource string) { s.api.ReleaseWrite(s.resource(resource)) }

// Bookmark makes the open watches of a resource send a bookmark now, unless they are held.
func (s *Server) Bookmark(resource string) { s.api.SendBookmarks(s.resource(resource)) }

// Break ends every watch of a resource. With compact, it also removes the history, releases held watches, and ends the
// watches of all other resources. A new list is then necessary.
func (s *Server) Break(resource string, compact bool) {
	if !compact {
		s.api.CloseWatches(s.resource(resource))
		return
	}
	s.api.Compact()
	s.api.CloseWatches()
	s.api.ReleaseWatches() // at the end, so that no watch sends a held change
}

// Compact removes the history: a watch from an earlier version then gets a 410. Open watches stay open.
func (s *Server) Compact() { s.api.Compact() }

// Renumber makes s another cluster than those that New returns, with other uids and later versions. number is that of
// the cluster, from 1. It must be called before the first request.
func (s *Server) Renumber(number uint64) { s.api.Renumber(number) }

// Backup returns a function that restores the present objects and resource version, as etcd does from a backup. The
// function ends every watch.
func (s *Server) Backup() (restore func()) {
	backup := s.api.Fork()
	return func() { s.api.Restore(backup) }
}

// ServeStale makes lists return the objects that exist now, until Fresh is called.
func (s *Server) ServeStale() { s.serveLists(s.api.Fork()) }

// Fresh ends ServeStale.
func (s *Server) Fresh() { s.serveLists(nil) }

func (s *Server) serveLists(stale *apiserver.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = stale
}

// kind returns the served kind with a resource name, such as deployments or deployments.apps. It panics if there is
// none.
func (s *Server) kind(resource string) *apiserver.Kind {
	wanted := schema.ParseGroupResource(resource)
	for _, kind := range s.kinds {
		if kind.Resource == wanted.Resource && (wanted.Group == "" || kind.Group == wanted.Group) {
			return kind
		}
	}
	panic("apitest: no resource " + resource)
}

func (s *Server) resource(resource string) schema.GroupResource {
	kind := s.kind(resource)
	return schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
}

// process returns the server's response to a request whose context may have ended.
func process(api *apiserver.Server, req *http.Request, isWatch bool) *http.Response {
	if !isWatch {
		req = req.WithContext(context.WithoutCancel(req.Context()))
	}
	res, err := api.Transport().RoundTrip(req)
	if err != nil {
		return Failure(apierrors.NewTimeoutError(err.Error(), 0))
	}
	return res
}

// Failure returns the response for an error, for hooks.
func Failure(err *apierrors.StatusError) *http.Response {
	res, encodeErr := apiserver.ErrorResponse(err.ErrStatus)
	if encodeErr != nil {
		panic(fmt.Sprintf("apitest: %v", encodeErr))
	}
	return res
}
