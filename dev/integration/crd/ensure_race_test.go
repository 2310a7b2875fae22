package crd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// intercepted returns the test's client, which calls the function before each request of a verb for definitions.
func (e env) intercepted(before func(), verb client.Verb) *client.Client {
	e.Helper()
	c, err := e.client.With(func(config *client.Config) {
		config.Interceptors = append(config.Interceptors, client.On(func(send client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if r.Kind == definitionKind() {
					before()
				}
				return send(ctx, r)
			}
		}, verb))
	})
	if err != nil {
		e.Fatal(err)
	}
	return c
}

const wider = `{type: object, properties: {spec: {type: object, properties: {host: {type: string}, path: {type: string}}}}}`

// hold creates an object with a finalizer, which blocks the removal of a definition, and begins to remove the
// definition.
func (e env) hold(d *apiextensionsv1.CustomResourceDefinition) (release func()) {
	e.Helper()
	held := e.object(d.Spec.Names.Kind, "v1", "held", nil)
	held.SetFinalizers([]string{"example.com/hold"})
	held = e.create(held)
	live := e.live(d.Name)
	live.SetGroupVersionKind(definitionKind())
	if err := client.Delete(e.Context(), e.client, live); err != nil {
		e.Fatal(err)
	}
	return func() {
		e.Helper()
		before := held.DeepCopy()
		held.SetFinalizers(nil)
		if _, err := client.Patch(e.Context(), e.client, held, client.MergeFrom(before, held)); err != nil {
			e.Error(err)
		}
	}
}

// While Ensure waits for the removal of a definition, a newer version of the program creates it again as soon as it is
// gone.
func TestEnsureComparesDefinitionCreatedAfterRemoval(t *testing.T) {
	e := newEnv(t)
	d, newer := e.define("Website", e.version("v1", host)), e.define("Website", e.version("v1", wider))
	e.ensure(d)
	release := e.hold(d)
	var reads atomic.Int32
	racing, err := e.client.With(func(config *client.Config) {
		config.Interceptors = append(config.Interceptors, client.On(func(send client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if r.Kind != definitionKind() {
					return send(ctx, r)
				}
				if reads.Load() == 1 { // the second read follows the removal
					e.ensure(newer) //nolint:contextcheck // a request of another client
				}
				defer reads.Add(1)
				return send(ctx, r)
			}
		}, client.VerbGet))
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		_, err := crd.Ensure(t.Context(), racing, []*apiextensionsv1.CustomResourceDefinition{d})
		var refused *crd.ChangeError
		if !errors.As(err, &refused) || refused.Problems[0].Path != "v1: spec.path" {
			t.Errorf("the error is %v, want a refusal for spec.path", err)
		}
	})
	clustertest.Eventually(t, func() string {
		if reads.Load() == 0 {
			return "the definition is not read yet"
		}
		return ""
	})
	release()
	running.Wait()
	if _, ok := e.live(d.Name).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["path"]; !ok {
		t.Error("the other's definition is lost")
	}
}

// While Ensure waits for one definition, another client creates the other one.
func TestEnsureComparesDefinitionCreatedDuringWait(t *testing.T) {
	e := newEnv(t)
	slow, d, newer := e.define("Bill", e.version("v1", host)), e.define("Website", e.version("v1", host)), e.define("Website", e.version("v1", wider))
	e.ensure(slow)
	release := e.hold(slow)
	var reads atomic.Int32
	counting := e.intercepted(func() { reads.Add(1) }, client.VerbGet)
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		_, err := crd.Ensure(t.Context(), counting, []*apiextensionsv1.CustomResourceDefinition{slow, d})
		var refused *crd.ChangeError
		if !errors.As(err, &refused) || refused.Name != d.Name {
			t.Errorf("the error is %v, want a refusal of %s", err, d.Name)
		}
	})
	clustertest.Eventually(t, func() string {
		if reads.Load() < 2 {
			return "the definitions are not read yet"
		}
		return ""
	})
	e.ensure(newer)
	release()
	running.Wait()
	if _, ok := e.live(d.Name).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["path"]; !ok {
		t.Error("the other's definition is lost")
	}
}

func TestEnsureDryRunDoesNotWaitForRemoval(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	e.ensure(d)
	release := e.hold(d)
	defer release()
	dry, err := e.client.With(func(config *client.Config) { config.DryRun = true })
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Scope = apiextensionsv1.ClusterScoped // allowed, because the definition will be created again
	ensured, err := crd.Ensure(t.Context(), dry, []*apiextensionsv1.CustomResourceDefinition{d})
	if err != nil || ensured[0].Outcome != client.Created || ensured[0].Definition == nil || ensured[0].Definition.UID != "" {
		t.Errorf("it would be %+v, %v, want another one to be created", ensured, err)
	}
}

// A client that reads an object in a version without a property, and writes it, drops the property.
func TestVersionWithFewerPropertiesDropsData(t *testing.T) {
	e := newEnv(t)
	none := `{type: object, properties: {spec: {type: object}}}`
	e.ensure(e.define("Website", e.version("v1", host)))
	created := e.create(e.object("Website", "v1", "a", map[string]any{"host": "a"}))
	next := e.define("Website", e.version("v1", host, stored), e.version("v2", none))
	_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next})
	var refused *crd.ChangeError
	if !errors.As(err, &refused) || refused.Problems[0].Path != "v1 to v2: spec.host" {
		t.Errorf("the error is %v, want a refusal for spec.host", err)
	}
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next}, crd.AllowDataLoss("v1 to v2: spec.host")); err != nil {
		t.Fatal(err)
	}
	inV2 := e.object("Website", "v2", "a", nil)
	if _, err := client.Patch(t.Context(), e.client, inV2, client.MergeFrom(inV2, func() *unstructured.Unstructured {
		changed := inV2.DeepCopy()
		changed.SetAnnotations(map[string]string{"a": "b"})
		return changed
	}())); err != nil {
		t.Fatal(err)
	}
	live, err := client.GetLive(t.Context(), e.client, created)
	if err != nil {
		t.Fatal(err)
	}
	if value, found, _ := unstructured.NestedString(live.Object, "spec", "host"); found {
		t.Errorf("spec.host is still %q: Compare has no reason to refuse", value)
	}
}

// A generated definition, with all fields that can be written in several ways.
func TestGeneratedDefinitionIsUnchanged(t *testing.T) {
	e := newEnv(t)
	definitions, err := crd.Parse([]byte(strings.ReplaceAll(generated, "GROUP", e.group)))
	if err != nil {
		t.Fatal(err)
	}
	e.ensure(definitions...)
	calls := newCalls()
	second, err := crd.Ensure(kube.ObserveCalls(t.Context(), calls), e.client, definitions)
	if err != nil || second[0].Outcome != client.Unchanged {
		t.Errorf("it is %+v, %v", second, err)
	}
	if diff := cmp.Diff([]string{"get customresourcedefinitions"}, calls.Take()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if problems := crd.Compare(e.live(definitions[0].Name), definitions[0]); len(problems) > 0 {
		t.Errorf("what is installed differs from itself: %v", problems)
	}
}

const generated = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.19.0
  creationTimestamp: null
  name: websites.GROUP
spec:
  group: GROUP
  names:
    kind: Website
    plural: websites
    categories: []
  scope: Namespaced
  preserveUnknownFields: false
  versions:
  - name: v1
    served: true
    storage: true
    deprecated: false
    additionalPrinterColumns:
    - jsonPath: .spec.host
      name: Host
      type: string
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
    schema:
      openAPIV3Schema:
        description: "Website is <a website> & more: \u00e4"
        type: object
        required: []
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            default: {}
            properties:
              host: {type: string, default: "<none>", minLength: 0, maxLength: 253}
              operator: {type: string, enum: ["<", ">=", "&"]}
              weight: {type: number, default: 1.50, minimum: 0.0, maximum: 1e3, multipleOf: 0.5}
              replicas: {type: integer, format: int32, default: 1, nullable: false}
              port:
                anyOf: [{type: integer}, {type: string}]
                x-kubernetes-int-or-string: true
              quantity:
                anyOf: [{type: integer}, {type: string}]
                pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$
                x-kubernetes-int-or-string: true
              labels: {type: object, additionalProperties: {type: string}}
              anything: {x-kubernetes-preserve-unknown-fields: true}
              no: {type: object, x-kubernetes-preserve-unknown-fields: true, x-kubernetes-embedded-resource: true}
              conditions:
                type: array
                default: []
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type]
                  properties:
                    type: {type: string}
                    status: {type: string, enum: ["True", "False"]}
              selector:
                type: object
                x-kubernetes-map-type: atomic
                x-kubernetes-validations:
                - {rule: "self == oldSelf", message: "is < immutable >"}
          status: {type: object, properties: {replicas: {type: integer}}}
status:
  acceptedNames: {kind: "", plural: ""}
  conditions: []
  storedVersions: []
`

// When a conversion webhook is removed, Ensure must also remove the CA bundle that a certificate manager has added: the
// API server rejects the rest.
func TestEnsureRemovesConversionWithForeignCABundle(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host, stored), e.version("v2", host))
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "shop", Name: "hook"}},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	e.ensure(d)
	calls := newCalls()
	if _, err := crd.Ensure(kube.ObserveCalls(t.Context(), calls), e.client, []*apiextensionsv1.CustomResourceDefinition{d}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get customresourcedefinitions"}, calls.Take()); diff != "" {
		t.Errorf("a webhook whose port is the default (-want +got):\n%s", diff)
	}
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion.Webhook.ClientConfig.CABundle = []byte(certificate)
	})
	for name, conversion := range map[string]*apiextensionsv1.CustomResourceConversion{
		"said":     {Strategy: apiextensionsv1.NoneConverter},
		"not said": nil,
	} {
		second := d.DeepCopy()
		e.ensure(second)
		e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion.Webhook.ClientConfig.CABundle = []byte(certificate)
		})
		second.Spec.Conversion = conversion
		dry, err := e.client.With(func(config *client.Config) { config.DryRun = true })
		if err != nil {
			t.Fatal(err)
		}
		tried, err := crd.Ensure(t.Context(), dry, []*apiextensionsv1.CustomResourceDefinition{second}, crd.AllowDataLoss("spec.conversion"))
		if err != nil || tried[0].Outcome != client.Updated || e.live(d.Name).Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
			t.Errorf("%s: in a dry run it is %+v, %v", name, tried, err)
		}
		for _, want := range []client.ObjectOutcome{client.Updated, client.Unchanged} {
			ensured, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{second}, crd.AllowDataLoss("spec.conversion"))
			if err != nil || ensured[0].Outcome != want || ensured[0].Definition.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
				t.Errorf("%s: it is %+v, %v, want %s", name, ensured, err, want)
			}
		}
	}
}

// Another program creates a missing definition shortly before the write: Ensure compares this definition too.
func TestEnsureComparesDefinitionCreatedBeforeWrite(t *testing.T) {
	e := newEnv(t)
	d, newer := e.define("Website", e.version("v1", host)), e.define("Website", e.version("v1", wider))
	var once sync.Once
	racing := e.intercepted(func() { once.Do(func() { e.ensure(newer) }) }, client.VerbApply)
	_, err := crd.Ensure(t.Context(), racing, []*apiextensionsv1.CustomResourceDefinition{d})
	var refused *crd.ChangeError
	if !errors.As(err, &refused) || refused.Problems[0].Path != "v1: spec.path" {
		t.Errorf("the error is %v, want a refusal for spec.path", err)
	}
	if _, ok := e.live(d.Name).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["path"]; !ok {
		t.Error("the other's definition is lost")
	}
}
