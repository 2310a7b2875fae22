package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// route returns the handler of a request. It is nil for a path that the real server does not know at all.
func (r *request) route(forceWatch bool) (handler func() (*response, error), err error) {
	if r.kind.custom() {
		return r.routeCustom(forceWatch)
	}
	return r.routeBuiltin(forceWatch)
}

// routeBuiltin is route for built-in kinds: a path has some methods.
func (r *request) routeBuiltin(forceWatch bool) (func() (*response, error), error) {
	methods := map[string]func() (*response, error){}
	list := func() (*response, error) { return r.listOrWatch(forceWatch) }
	inScope := r.kind.ClusterScoped == (r.namespace == "")
	isNamespace := r.kind.namespace()
	switch {
	case strings.Contains(r.URL.Path, "//"): // without it, the path of one object would name all objects
	case forceWatch && r.subresource != "":
	case r.kind.review != nil && (!inScope || forceWatch || r.name != ""):
	case r.kind.review != nil:
		methods[http.MethodPost] = r.answer
	case !inScope && (r.kind.ClusterScoped || r.name != ""):
	case !inScope || forceWatch: // of all namespaces, or a watch in the old form of paths
		methods[http.MethodGet] = list
	case r.name == "":
		methods[http.MethodGet], methods[http.MethodPost], methods[http.MethodDelete] = list, r.create,
			r.deleteCollection
		if isNamespace {
			delete(methods, http.MethodDelete)
		}
	case r.subresource == "finalize" && isNamespace:
		methods[http.MethodPut] = r.update
	case r.subresource == bindingSubresource && r.kind.bound():
		methods[http.MethodPost] = r.bind
	case r.subresource == evictionSubresource && r.kind.bound():
		methods[http.MethodPost] = r.evict
	case r.subresource == tokenSubresource && r.kind.serviceAccount():
		methods[http.MethodPost] = r.createToken
	case r.subresource == "" || r.subresource == "status" && r.kind.Status || r.scaled() && r.kind.Scale != nil ||
		slices.Contains(r.kind.Subresources, r.subresource):
		methods[http.MethodGet], methods[http.MethodPut], methods[http.MethodPatch] = r.get, r.update, r.patch
		if r.subresource == "" {
			methods[http.MethodDelete] = r.delete
		}
	}
	switch handler := methods[r.Method]; {
	case handler != nil:
		return handler, nil
	case len(methods) > 0:
		return nil, genericError(http.StatusMethodNotAllowed)
	}
	return nil, genericError(http.StatusNotFound)
}

// genericError is the error for a path or method that a built-in group does not serve.
func genericError(code int) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false)
}

// routeCustom is route for custom resources: the verb selects the handler, also for paths without a meaning.
func (r *request) routeCustom(forceWatch bool) (func() (*response, error), error) {
	if r.kind.ClusterScoped != (r.namespace == "") && (r.kind.ClusterScoped || r.Method != http.MethodGet ||
		r.name != "" && !forceWatch) {
		return nil, nil
	}
	verbs := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete", http.MethodGet: "get",
	}
	verb := verbs[r.Method]
	switch {
	case forceWatch: // with any method
		verb = "watch"
	case verb == "get" && r.name == "":
		verb = "list"
	case verb == "delete" && r.name == "":
		verb = "deletecollection"
	}
	handlers := map[string]func() (*response, error){"get": r.get, "update": r.update, "patch": r.patch}
	switch {
	case r.subresource == "":
		list := func() (*response, error) { return r.listOrWatch(forceWatch) }
		handlers["list"], handlers["watch"] = list, list
		handlers["create"], handlers["delete"], handlers["deletecollection"] = r.create, r.delete, r.deleteCollection
	case (r.subresource != "status" || !r.kind.Status) && (!r.scaled() || r.kind.Scale == nil):
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	handler := handlers[verb]
	if handler == nil {
		return nil, apierrors.NewMethodNotSupported(r.kind.groupResource(), verb)
	}
	return handler, nil
}

// unknownResource is the response for a resource that is not served: a Status in a group of built-in kinds, otherwise
// text.
func (s *serving) unknownResource(name resourcePath, req *http.Request) *response {
	for _, kind := range s.kindsOf(name.group, name.version) {
		if !kind.custom() {
			return s.failure(genericError(http.StatusNotFound), req.Header)
		}
	}
	return notServed()
}
