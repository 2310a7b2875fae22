package apiserver

import (
	"strings"
	"testing"
)

// Managed fields that a client sends are validated, in objects of Go types and in custom resources.
func TestManagedFieldsOfClientsAreValidated(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const entry = `,"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:app":{}}}},"operation":"Update","manager":"`
	long := strings.Repeat("m", 129)
	for path, kind := range map[string]string{
		configMapsPath: "ConfigMap",
		"/apis/example.com/v1/namespaces/shop/widgets": "Widget",
	} {
		version := `"apiVersion":"v1"`
		if kind == "Widget" {
			version = `"apiVersion":"example.com/v1"`
		}
		object := func(managed string) string {
			return `{"kind":"` + kind + `",` + version + `,"metadata":{"name":"a","resourceVersion":"` + s.Version() + `","labels":{"app":"web"}` + managed + `}}`
		}
		mustSend(t, s, "POST", path, strings.Replace(object(""), `"resourceVersion"`, `"selfLink"`, 1))
		for name, invalid := range map[string]struct{ entry, message string }{
			"manager":     {entry + long + `"}`, "metadata.managedFields[0].manager"},
			"subresource": {entry + `m","subresource":"` + strings.Repeat("s", 257) + `"}`, "metadata.managedFields[0].subresource"},
		} {
			code, text := send(t, s, "PUT", path+"/a", object(`,"managedFields":[{`+version+invalid.entry+`]`))
			if code != 422 || !strings.Contains(text, invalid.message) {
				t.Errorf("update at %s with an invalid %s: %d %s", path, name, code, text)
			}
		}
	}
}
