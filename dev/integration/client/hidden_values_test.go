package client

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/simulation"
)

const accounts = `
type: object
properties:
  spec:
    type: object
    properties:
      password: {type: string, maxLength: 3}
      options: {type: object, additionalProperties: {type: string, maxLength: 3}}
      users:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items:
          type: object
          required: [name]
          x-kubernetes-validations: [{rule: "self.name != 'bad'"}]
          properties: {name: {type: string}, token: {type: string, enum: [a]}}
`

// Hidden values are not in the API server's errors about requests that it cannot read or that are not valid.
func TestHiddenValuesInErrors(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Connect(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))
	c := clustertest.Client(t, cluster)
	namespace := clustertest.Namespace(t, c)
	kind := schema.GroupVersionKind{Group: "hidden.example.com", Version: "v1", Kind: "Account"}
	definition := fixture.Kind{GroupVersionKind: kind, Schema: accounts}.Definition()
	if _, err := client.Create(t.Context(), c, definition); err != nil {
		t.Fatal(err)
	}
	if err := cluster.HideFields(kind.GroupKind(), "spec.password", `spec.options["tls.key"]`, "spec.users.token"); err != nil {
		t.Fatal(err)
	}
	rest, err := cluster.RESTClient(kind.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/hidden.example.com/v1/namespaces/" + namespace + "/accounts"
	secrets := "/api/v1/namespaces/" + namespace + "/secrets"
	const apply, merge, jsonPatch = "application/apply-patch+yaml", "application/merge-patch+json", "application/json-patch+json"
	send := func(verb, path, contentType, body string) error {
		if contentType == apply {
			path += "?fieldManager=test&force=true"
		}
		return rest.Verb(verb).RequestURI(path).SetHeader("Content-Type", contentType).Body([]byte(body)).Do(t.Context()).Error()
	}
	clustertest.Eventually(t, func() string {
		if err := send("POST", path, "application/json", `{"apiVersion":"hidden.example.com/v1","kind":"Account","metadata":{"name":"a"}}`); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := send("POST", secrets, "application/json", `{"metadata":{"name":"a"}}`); err != nil {
		t.Fatal(err)
	}
	const head = `{"apiVersion":"hidden.example.com/v1","kind":"Account","metadata":{"name":"a"},`
	const secretHead = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},`
	for _, spec := range []string{
		`{"password":"hunter2"}`, `{"password":4711}`, `{"password":{"a":"hunter2"}}`, `{"password":["hunter2"]}`,
		`{"options":{"tls.key":"hunter2"}}`, `{"options":{"tls.key":4711}}`, `{"options":{"tls.key":["hunter2"]}}`,
		`{"users":[{"name":"x","token":"hunter2"}]}`, `{"users":[{"name":"x","token":4711}]}`, `{"users":[{"name":"bad","token":"a4711"}]}`,
		`{"users":[{"token":"hunter2"}]}`, `{"users":{"token":"hunter2"}}`, `{"users":"hunter2"}`, `"hunter2"`, `["hunter2"]`,
		`{"users":[{"name":"x","token":"hunter2"},{"name":"x","token":"hunter2"}]}`,
		`{"password":"hunter2","password":"hunter2"}`, `{"password":"hunter2`, `{"password":hunter2}`,
	} {
		for _, r := range [][3]string{
			{"POST", path, "application/json"}, {"PUT", path + "/a", "application/json"}, {"PATCH", path + "/a", apply}, {"PATCH", path + "/a", merge},
		} {
			report(t, r, spec, send(r[0], r[1], r[2], head+`"spec":`+spec+"}"))
		}
	}
	for _, data := range []string{
		`"data":{"p":"hunter2"}`, `"data":{"p":4711}`, `"data":{"p":{"a":"hunter2"}}`, `"data":"hunter2"`, `"data":["hunter2"]`,
		`"stringData":{"p":4711}`, `"stringData":{"p":{"a":"hunter2"}}`, `"stringData":"hunter2"`, `"stringData":["hunter2"]`,
		`"stringData":{"p q":"hunter2"}`, `"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"hunter2"}`,
		`"stringData":{"p":"hunter2","p":"hunter2"}`, `"stringData":{"p":hunter2}`, `"stringData":{"p":"hunter2`,
	} {
		for _, r := range [][3]string{
			{"POST", secrets, "application/json"},
			{"PUT", secrets + "/a", "application/json"},
			{"PATCH", secrets + "/a", apply},
			{"PATCH", secrets + "/a", merge},
			{"PATCH", secrets + "/a", "application/strategic-merge-patch+json"},
		} {
			report(t, r, data, send(r[0], r[1], r[2], secretHead+data+"}"))
		}
	}
	for _, patch := range []string{
		`[{"op":"test","path":"/spec/password","value":"hunter2"}]`, `[{"op":"replace","path":"/spec/none/x","value":"hunter2"}]`,
		`[{"op":"add","path":"/data","value":"hunter2"}]`, `[{"op":"add","path":"/data","value":{"a":"hunter2"}}]`, `[{"op":"add","value":"hunter2"}]`,
	} {
		report(t, [3]string{"PATCH", path + "/a", jsonPatch}, patch, send("PATCH", path+"/a", jsonPatch, patch))
		report(t, [3]string{"PATCH", secrets + "/a", jsonPatch}, patch, send("PATCH", secrets+"/a", jsonPatch, patch))
	}
}

func report(t *testing.T, request [3]string, body string, err error) {
	t.Helper()
	text := fmt.Sprintf("%v %#v", err, err)
	if err != nil && (strings.Contains(text, "hunter2") || strings.Contains(text, "4711")) {
		t.Errorf("%s %s: %v", request[0]+" "+request[2], body, err)
	}
}
