package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) {
		c.Kinds[len(c.Kinds)-1].OpenAPI = []byte(`{"type":"object","properties":{"spec":{"type":"object","description":"The desired state."}}}`)
	})
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(mustSend(t, s, http.MethodGet, "/openapi/v3", "")), &root); err != nil {
		t.Fatal(err)
	}
	for path, wants := range map[string][]string{
		"api/v1":              {`"io.k8s.api.core.v1.ConfigMap":`, `"/api/v1/namespaces/{namespace}/configmaps/{name}"`, `"name":"fieldValidation"`},
		"apis/example.com/v1": {`"com.example.v1.Widget":`, "The desired state.", `"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":`},
	} {
		url := root.Paths[path].ServerRelativeURL
		text := mustSend(t, s, http.MethodGet, url, "")
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not contain %s", path, want)
			}
		}
		if strings.Contains(text, "core.v1.Pod") {
			t.Errorf("%s has kinds that are not served", path)
		}
		_, hash, _ := strings.Cut(url, "?hash=")
		if code, _ := send(t, s, http.MethodGet, url, "", "If-None-Match", `"`+hash+`"`); hash == "" || code != http.StatusNotModified {
			t.Errorf("%s: %d, want %d for the same hash", url, code, http.StatusNotModified)
		}
	}
	if code, _ := send(t, s, http.MethodGet, "/openapi/v3/apis/other/v1", ""); code != http.StatusNotFound {
		t.Errorf("a group that is not served: %d", code)
	}
}
