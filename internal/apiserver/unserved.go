package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noPermissions is the warning in responses to impersonated requests of a server without the kinds of RBAC.
const noPermissions = "this API server in memory has no RBAC and checks no permissions: impersonation has no effect"

// impersonates reports whether a request impersonates a user.
func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// refuse returns the error of a request for something that kube-apiserver has and this server has not. It names it, so
// that nobody looks for the mistake in the client. Nil: any other request.
func (s *serving) refuse(req *http.Request, path Path) error {
	name, resource := strings.Trim(req.URL.Path, "/"), path.Resource
	subresource, _, _ := strings.Cut(path.Subresource, "/")
	switch {
	case name == "openapi/v2":
	case slices.Contains([]string{
		"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "resource.k8s.io", "autoscaling",
	}, resource.Group) && len(s.kindsOf(resource.Group, resource.Version)) == 0:
		name = fmt.Sprintf("%s of %s", resource.Resource, resource.GroupVersion())
	case slices.Contains([]string{
		"nodes/proxy", "pods/attach", "pods/exec", "pods/log", "pods/portforward", "pods/proxy",
		"replicationcontrollers/scale", "services/proxy",
	}, resource.Resource+"/"+subresource):
		name = resource.Resource + "/" + subresource
	default:
		return nil
	}
	const problem = "the API server in memory does not serve "
	return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, problem+name)
}
