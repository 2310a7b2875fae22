package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	resource := func(group, version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
	}
	pods, deployments, namespaces := resource("", "v1", "pods"), resource("apps", "v1", "deployments"), resource("", "v1", "namespaces")
	for target, want := range map[string]struct {
		path Path
		verb string // of a GET
	}{
		"/":              {Path{}, "list"},
		"/version":       {Path{}, "list"},
		"/api":           {Path{}, "list"},
		"/api/v1":        {Path{}, "list"},
		"/apis/apps":     {Path{}, "list"},
		"/apis/apps/v1/": {Path{}, "list"},

		"/api/v1/pods":                                                {Path{Resource: pods}, "list"},
		"/api/v1/pods/":                                               {Path{Resource: pods}, "list"},
		"/apis/apps/v1/deployments":                                   {Path{Resource: deployments}, "list"},
		"/apis/apps/v1/namespaces/shop/deployments":                   {Path{Resource: deployments, Namespace: "shop"}, "list"},
		"/apis/apps/v1/namespaces/shop/deployments/web":               {Path{Resource: deployments, Namespace: "shop", Name: "web"}, "get"},
		"/apis/apps/v1/namespaces/shop/deployments/web/scale":         {Path{Resource: deployments, Namespace: "shop", Name: "web", Subresource: "scale"}, "get"},
		"/api/v1/namespaces/shop/pods/web/proxy/a/b":                  {Path{Resource: pods, Namespace: "shop", Name: "web", Subresource: "proxy/a/b"}, "get"},
		"/api/v1/namespaces/shop/pods/a%2Fb":                          {Path{Resource: pods, Namespace: "shop", Name: "a", Subresource: "b"}, "get"},
		"/api/v1/namespaces/shop/pods/a%20b":                          {Path{Resource: pods, Namespace: "shop", Name: "a b"}, "get"},
		"/api/v1/namespaces/status/pods":                              {Path{Resource: pods, Namespace: "status"}, "list"},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node": {Path{Resource: resource("rbac.authorization.k8s.io", "v1", "clusterroles"), Name: "system:node"}, "get"},

		"/api/v1/namespaces":               {Path{Resource: namespaces}, "list"},
		"/api/v1/namespaces/shop":          {Path{Resource: namespaces, Name: "shop"}, "get"},
		"/api/v1/namespaces/shop/":         {Path{Resource: namespaces, Name: "shop"}, "get"},
		"/api/v1/namespaces/shop/status":   {Path{Resource: namespaces, Name: "shop", Subresource: "status"}, "get"},
		"/api/v1/namespaces/shop/finalize": {Path{Resource: namespaces, Name: "shop", Subresource: "finalize"}, "get"},

		"/api/v1/watch/pods":                        {Path{Resource: pods, Watch: true}, "watch"},
		"/api/v1/watch/namespaces/shop/pods/web":    {Path{Resource: pods, Namespace: "shop", Name: "web", Watch: true}, "watch"},
		"/api/v1/pods?watch=true":                   {Path{Resource: pods}, "watch"},
		"/api/v1/pods?watch=1":                      {Path{Resource: pods}, "watch"},
		"/api/v1/pods?watch":                        {Path{Resource: pods}, "watch"},
		"/api/v1/pods?watch=False":                  {Path{Resource: pods}, "list"},
		"/api/v1/pods?watch=0":                      {Path{Resource: pods}, "list"},
		"/api/v1/namespaces/shop/pods/a?watch=true": {Path{Resource: pods, Namespace: "shop", Name: "a"}, "watch"},
	} {
		req := httptest.NewRequest(http.MethodGet, target, nil)
		path := ParsePath(req.URL.Path)
		if path != want.path || path.Verb(req) != want.verb {
			t.Errorf("%s: %s %+v, want %s %+v", target, path.Verb(req), path, want.verb, want.path)
		}
	}
	if verb := ParsePath("/api/v1/watch/pods").Verb(httptest.NewRequest(http.MethodPost, "/", nil)); verb != "watch" {
		t.Errorf("POST to the path of a watch: %s", verb)
	}
	for method, want := range map[string][2]string{ // of a collection, and of an object
		"POST": {"create", "create"}, "PUT": {"update", "update"}, "PATCH": {"patch", "patch"},
		"DELETE": {"deletecollection", "delete"}, "HEAD": {"head", "head"},
	} {
		for i, target := range []string{"/api/v1/namespaces", "/api/v1/namespaces/shop"} {
			req := httptest.NewRequest(method, target, nil)
			if verb := ParsePath(req.URL.Path).Verb(req); verb != want[i] {
				t.Errorf("%s %s: %s, want %s", method, target, verb, want[i])
			}
		}
	}
}
