package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSystemObjects compares the objects that an API server creates when it starts. Of the roles, the server in memory has only
// those that users bind.
func TestSystemObjects(t *testing.T) {
	realOne, memory := realServer(t), simulated(t, nil)
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	for _, path := range []string{
		"/api/v1/namespaces/default/services/kubernetes", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
		"/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
		rbac + "/clusterroles/cluster-admin", rbac + "/clusterroles/admin", rbac + "/clusterroles/edit", rbac + "/clusterroles/view",
		rbac + "/clusterroles/system:auth-delegator", rbac + "/clusterroles/system:basic-user", rbac + "/clusterrolebindings/system:basic-user",
		rbac + "/clusterrolebindings/cluster-admin", rbac + "/namespaces/kube-system/roles/extension-apiserver-authentication-reader",
	} {
		var texts [2]string
		for i, s := range []*server{realOne, memory} {
			object, _ := decode(s.send(t.Context(), http.MethodGet, path, "", nil).body).(map[string]any)
			delete(object, "data") // certificates
			if spec, ok := object["spec"].(map[string]any); ok {
				delete(spec["ports"].([]any)[0].(map[string]any), "targetPort") // of the process
			}
			if strings.Contains(path, "bindings/") { // kinds without rules have no schema, by which a reference is one field
				delete(object["metadata"].(map[string]any), "managedFields")
			}
			texts[i] = newNames().canonical(object)
		}
		if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
			t.Errorf("%s (-real +memory)\n%s", path, diff)
		}
	}
}
