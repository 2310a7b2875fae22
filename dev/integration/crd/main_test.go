// Package crd tests package crd against a real kube-apiserver.
package crd

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// local is the API server that all tests of the package share. Each test has its own API group.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

// env is the environment of a test: an API group, and the client of a program that has just started.
type env struct {
	*testing.T
	group  string
	client *client.Client
}

func newEnv(t *testing.T) env {
	t.Helper()
	t.Parallel() // the API server takes 2 s for the first object of a new kind
	group := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())) + fmt.Sprintf("-%x.example.com", rand.Uint32())
	return env{T: t, group: group, client: newProgram(t)}
}

// newProgram returns the client of a new program.
func newProgram(t *testing.T) *client.Client {
	t.Helper()
	return clustertest.Client(t, clustertest.Connect(t, local.RESTConfig()))
}

const host = `{type: object, properties: {spec: {type: object, properties: {host: {type: string}}}}}`

// version returns a version with a schema in YAML.
func (e env) version(name, text string, change ...func(*crdtest.Version)) crdtest.Version {
	e.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.Unmarshal([]byte(text), props); err != nil {
		e.Fatal(err)
	}
	v := crdtest.Version{Name: name, Schema: props}
	for _, c := range change {
		c(&v)
	}
	return v
}

// severityOf returns the severity of a problem, which only its text has.
func severityOf(p crd.Problem) string {
	severity, _, _ := strings.Cut(p.String(), ":")
	return severity
}

func stored(v *crdtest.Version) { v.Storage = true }

// define returns a definition in the test's group.
func (e env) define(kind string, versions ...crdtest.Version) *apiextensionsv1.CustomResourceDefinition {
	e.Helper()
	return crdtest.Define(e.group, kind, versions...)
}

// ensure ensures definitions with the test's client.
func (e env) ensure(definitions ...*apiextensionsv1.CustomResourceDefinition) []crd.Ensured {
	e.Helper()
	ensured, err := crd.Ensure(e.Context(), e.client, definitions)
	if err != nil {
		e.Fatal(err)
	}
	return ensured
}

// object returns an object of a kind of the test's group.
func (e env) object(kind, version, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(e.group + "/" + version)
	obj.SetKind(kind)
	obj.SetNamespace("default")
	obj.SetName(name)
	return obj
}

func (e env) create(obj *unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	created, err := client.Create(e.Context(), e.client, obj)
	if err != nil {
		e.Fatal(err)
	}
	return created
}

// live returns the stored definition.
func (e env) live(name string) *apiextensionsv1.CustomResourceDefinition {
	e.Helper()
	d, err := client.Get[*apiextensionsv1.CustomResourceDefinition](e.Context(), e.client, kube.Key{Name: name},
		client.OfKind(definitionKind()))
	if err != nil {
		e.Fatal(err)
	}
	return d
}

// edit changes a definition as another client.
func (e env) edit(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	e.Helper()
	d := e.live(name)
	change(d)
	if _, err := client.Update(e.Context(), e.client, d, client.FieldOwner("somebody-else")); err != nil {
		e.Fatal(err)
	}
}

// resources returns the resources that the API server serves in a version, by name.
func (e env) resources(version string) map[string]metav1.APIResource {
	e.Helper()
	api, err := e.client.Cluster().RESTClient(apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		e.Fatal(err)
	}
	list := &metav1.APIResourceList{}
	if err := api.Get().AbsPath("/apis", e.group, version).Do(e.Context()).Into(list); err != nil {
		e.Fatal(err)
	}
	byName := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		byName[r.Name] = r
	}
	return byName
}

// newCalls returns a record of requests, with discovery requests: "get customresourcedefinitions".
func newCalls() *fixture.Calls {
	return &fixture.Calls{WithDiscovery: true, Text: func(call kube.Call) string { return call.Verb + " " + call.Resource.Resource }}
}

// certificate is a valid certificate that is not used for connections.
const certificate = `-----BEGIN CERTIFICATE-----
MIIBNDCB56ADAgECAhQ+ynGJWJccOi54SR2m4nESvTQ1GDAFBgMrZXAwDzENMAsG
A1UEAwwEaG9vazAgFw0yNjExMjAxNjM0MzJaGA8yMTI2MTAyNzE2MzQzMlowDzEN
MAsGA1UEAwwEaG9vazAqMAUGAytlcAMhAI3GLN3Pp8TOR90xYgu/XM089nZE+KGo
h88H0x/MnDRto1MwUTAdBgNVHQ4EFgQUEFmQgc9aZFs7FOqYUul/43MFnSkwHwYD
VR0jBBgwFoAUEFmQgc9aZFs7FOqYUul/43MFnSkwDwYDVR0TAQH/BAUwAwEB/zAF
BgMrZXADQQBlE5XNs/BjTVJPs6Ez0mN4wLD1KkG6EckYn4ECe7QX14uxYLjokHlS
VsRD+UrDxmTCLePunlAViJX3hJJPV/gK
-----END CERTIFICATE-----
`

func definitionKind() schema.GroupVersionKind {
	return apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
}
