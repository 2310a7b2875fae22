package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

// Requests whose responses simulation/conformance compares with those of the real server.
func TestProtocol(t *testing.T) {
	t.Parallel()
	const widgetsPath = "/apis/example.com/v1/namespaces/shop/widgets"
	const merge = "application/merge-patch+json"
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
	widget := func(metadata string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"` + metadata + `}}`
	}
	for name, test := range map[string]struct {
		method, path, body, header, value string
		code                              int
		want                              string
	}{
		"part of the media types, built-in":        {"GET", configMapsPath + "/a", "", "Accept", "application/*", http.StatusNotAcceptable, "406: Not Acceptable"},
		"part of the media types, custom":          {"GET", widgetsPath + "/a", "", "Accept", "application/*", http.StatusOK, `"kind":"Widget"`},
		"a media type before a part of all":        {"GET", configMapsPath + "/a", "", "Accept", "application/*, application/yaml", http.StatusOK, "kind: ConfigMap"},
		"metadata in v1beta1":                      {"GET", configMapsPath + "/a", "", "Accept", partial, http.StatusOK, `"apiVersion":"meta.k8s.io/v1beta1"`},
		"owner reference without fields":           {"POST", widgetsPath, widget(`,"ownerReferences":[{}]`), "", "", http.StatusUnprocessableEntity, `metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty`},
		"patch of the version":                     {"PATCH", widgetsPath + "/a", `{"apiVersion":"example.com/v2"}`, "Content-Type", merge, http.StatusUnprocessableEntity, "apiVersion: Invalid value"},
		"patch without a version":                  {"PATCH", widgetsPath + "/a", `{"apiVersion":null}`, "Content-Type", merge, http.StatusInternalServerError, "Object 'apiVersion' is missing"},
		"get with an empty segment":                {"GET", configMapsPath + "//a", "", "", "", http.StatusNotFound, "could not find the requested resource"},
		"delete with an empty segment":             {"DELETE", configMapsPath + "//a", "", "", "", http.StatusNotFound, "could not find the requested resource"},
		"delete of a collection without namespace": {"DELETE", "/api/v1/namespaces//configmaps", "", "", "", http.StatusNotFound, "could not find the requested resource"},
		"discovery of an unserved group":           {"GET", "/apis/resource.k8s.io/v1", "", "", "", http.StatusNotFound, ""},
		"unserved group":                           {"POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "{}", "", "", http.StatusNotFound, "does not serve flowschemas of flowcontrol.apiserver.k8s.io/v1"},
		"unserved version":                         {"GET", "/apis/autoscaling/v1/horizontalpodautoscalers", "", "", "", http.StatusNotFound, "does not serve horizontalpodautoscalers of autoscaling/v1"},
		"unserved subresource":                     {"GET", "/api/v1/namespaces/shop/replicationcontrollers/web/scale", "", "", "", http.StatusNotFound, "does not serve replicationcontrollers/scale"},
		"unserved subresource of a Pod":            {"GET", "/api/v1/namespaces/shop/pods/web/proxy/a/b", "", "", "", http.StatusNotFound, "does not serve pods/proxy"},
		"unserved document":                        {"GET", "/openapi/v2", "", "", "", http.StatusNotFound, "does not serve openapi/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.SetAdmission(reviewer{noReview, noReview})
			mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
			mustSend(t, s, "POST", widgetsPath, widget(""))
			headers := []string{test.header, test.value}
			if test.header == "" {
				headers = nil
			}
			if code, text := send(t, s, test.method, test.path, test.body, headers...); code != test.code || !strings.Contains(text, test.want) {
				t.Errorf("%d %s, want %d %s", code, text, test.code, test.want)
			}
			mustSend(t, s, "GET", configMapsPath+"/a", "")
		})
	}
}

// A program that impersonates its service account can be tested, and is told that its permissions are not checked.
func TestImpersonationHasWarning(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for user, want := range map[string]string{"": "", "alice": `299 - "` + noPermissions + `"`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apiserver.invalid"+configMapsPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.Header.Set("Impersonate-User", user)
		}
		res, err := s.Transport().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Warning"); res.StatusCode != http.StatusOK || got != want {
			t.Errorf("user %q: %d, the warning is %q, want %q", user, res.StatusCode, got, want)
		}
	}
}
