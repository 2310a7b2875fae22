package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clusterkinds "github.com/evenkeel-go/evenkeel/simulation/internal/kinds"
)

// TestNames compares which names and finalizers of new objects are valid, for all built-in kinds.
func TestNames(t *testing.T) {
	realOne, memory := realServer(t), simulated(t, nil)
	namespace := fmt.Sprintf("names%d", time.Now().Unix())
	for _, s := range []*server{realOne, memory} {
		s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`, nil)
	}
	all, err := clusterkinds.All()
	if err != nil {
		t.Fatal(err)
	}
	// causes are those of the metadata: kinds without rules do not check more.
	causes := func(s *server, path, metadata string) string {
		res := s.send(t.Context(), http.MethodPost, path+"?dryRun=All", `{"metadata":{`+metadata+`}}`, nil)
		content, _ := decode(res.body).(map[string]any)
		details, _ := content["details"].(map[string]any)
		list, _ := details["causes"].([]any)
		var texts []string
		for _, cause := range list {
			if field := fmt.Sprint(cause.(map[string]any)["field"]); strings.HasPrefix(field, "metadata.") {
				texts = append(texts, field+": "+fmt.Sprint(cause.(map[string]any)["message"]))
			}
		}
		slices.Sort(texts)
		return strings.Join(texts, "\n")
	}
	for _, k := range all {
		path := "/api/" + k.Version
		if k.Group != "" {
			path = "/apis/" + k.Group + "/" + k.Version
		}
		if !k.ClusterScoped {
			path += "/namespaces/" + namespace
		}
		path += "/" + k.Resource
		for _, metadata := range []string{
			`"name":"Bad_Name"`, `"name":"a.b"`, `"name":"1a"`, `"name":"-a"`, `"name":"` + strings.Repeat("n", 53) + `"`, `"name":"` + strings.Repeat("n", 64) + `"`,
			`"name":"` + strings.Repeat("n", 254) + `"`, `"name":"a:b"`, `"name":"a%b"`, `"name":"a","finalizers":["plain"]`,
		} {
			if k.Kind == "ReplicationController" && len(metadata) > 253 || k.Kind == "CertificateSigningRequest" && strings.Contains(metadata, "%") {
				continue // bytes instead of characters; a name that no path can contain
			}
			if want, got := causes(realOne, path, metadata), causes(memory, path, metadata); want != got {
				t.Errorf("%s %.60s: real %q, memory %q", path, metadata, want, got)
			}
		}
	}
}
