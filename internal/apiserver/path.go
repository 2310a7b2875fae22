package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is what a request for objects names. The zero Path is that of other requests, such as discovery.
type Path struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty for a Namespace itself
	Name      string
	// Subresource has slashes if it has a path of its own, as that of a proxy.
	Subresource string
	// Watch is true for paths in the form before the parameter watch: /api/v1/watch/pods.
	Watch bool
}

// ParsePath returns the parts of a request's URL.Path.
func ParsePath(path string) Path {
	p, parts := Path{}, strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		p.Resource.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		p.Resource.Group, p.Resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return p
	}
	if parts[0] == "watch" && len(parts) > 1 {
		p.Watch, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		p.Namespace, parts = parts[1], parts[2:]
	}
	p.Resource.Resource = parts[0]
	if len(parts) > 1 {
		p.Name = parts[1]
	}
	if len(parts) > 2 {
		p.Subresource = strings.Join(parts[2:], "/")
	}
	return p
}

// Verb returns the verb of a request with this path as in Kubernetes' rules of access.
func (p Path) Verb(req *http.Request) string {
	if p.Watch {
		return "watch"
	}
	switch req.Method {
	case http.MethodGet:
		watch, given := req.URL.Query()["watch"]
		switch {
		case given && !strings.EqualFold(watch[0], "false") && watch[0] != "0": // as apimachinery decodes it
			return "watch"
		case p.Name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if p.Name == "" {
			return "deletecollection"
		}
	}
	return strings.ToLower(req.Method)
}
