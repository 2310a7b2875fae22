package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// fieldChange is a change of the schema of one field, and a value that the field had before.
type fieldChange struct {
	before, after string // schemas
	value         string // JSON
	want          string
}

// fieldChanges returns possible changes of a schema, by the name of the field.
func fieldChanges() map[string]fieldChange {
	const (
		object   = `{type: object, properties: {k: {type: integer}}}`
		anything = `{x-kubernetes-preserve-unknown-fields: true}`
		unknown  = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
		embedded = `{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`
		port     = `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`
		list     = `{type: array, items: {type: object, required: [k], properties: {k: {type: string}}}`
		pod      = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "k": 1}`
	)
	return map[string]fieldChange{
		"canary": {object, `{type: object}`, `{"k": 1}`, "lossy"},

		// Changes that drop data.
		"mapOfAny":        {unknown, `{type: object, additionalProperties: true}`, `{"a": {"b": 1}}`, "lossy"},
		"mapOfObjects":    {`{type: object, additionalProperties: {type: object, properties: {k: {type: integer}}}}`, `{type: object, additionalProperties: true}`, `{"a": {"k": 1}}`, "lossy"},
		"mapOfLists":      {`{type: object, additionalProperties: {type: array, items: {type: object, properties: {k: {type: integer}}}}}`, `{type: object, additionalProperties: true}`, `{"a": [{"k": 1}]}`, "lossy"},
		"mapOfNumbers":    {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: true}`, `{"a": 1}`, ""},
		"listOfUnknown":   {`{type: array, x-kubernetes-preserve-unknown-fields: true, items: ` + object + `}`, `{type: array, items: ` + object + `}`, `[{"k": 1, "more": 1}]`, "lossy"},
		"listKeepsItems":  {`{type: array, items: ` + unknown + `}`, `{type: array, x-kubernetes-preserve-unknown-fields: true, items: ` + object + `}`, `[{"k": 1, "more": 1}]`, "lossy"},
		"anyToString":     {anything, `{type: string}`, `{"k": 1}`, "lossy"},
		"anyToPort":       {anything, port, `{"k": 1}`, "lossy"},
		"anyToList":       {anything, `{type: array, items: {type: string}}`, `{"k": 1}`, "lossy"},
		"anyToMap":        {anything, `{type: object, additionalProperties: ` + anything + `}`, `[{"k": 1}]`, "lossy"},
		"anyToListItems":  {anything, `{type: array, items: {type: string}}`, `[{"k": 1}]`, "lossy"},
		"unknown":         {unknown, object, `{"k": 1, "more": 1}`, "lossy"},
		"unknownMap":      {unknown, `{type: object, additionalProperties: {type: object}}`, `{"a": {"b": 1}}`, "lossy"},
		"embeddedMeta":    {unknown, embedded, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"more": 1}}`, "lossy"},
		"embeddedNames":   {`{type: object, x-kubernetes-embedded-resource: true, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}, k: {type: integer}}}`, `{type: object, x-kubernetes-embedded-resource: true, properties: {k: {type: integer}}}`, pod, ""},
		"embeddedNoMore":  {embedded, object, pod, "lossy"},
		"typeOfItems":     {`{type: array, items: {type: object, properties: {k: {type: integer}}}}`, `{type: array, items: {type: string}}`, `[{"k": 1}]`, "lossy"},
		"nullWithDefault": {`{type: string, nullable: true, default: a}`, `{type: string, default: a}`, `null`, "lossy"},
		"nulls":           {`{type: string, nullable: true}`, `{type: string}`, `null`, "lossy"},
		"nullEntry":       {`{type: object, additionalProperties: {type: string, nullable: true}}`, `{type: object, additionalProperties: {type: string}}`, `{"a": null}`, "lossy"},
		"nullItem":        {`{type: array, items: {type: string, nullable: true}}`, `{type: array, items: {type: string}}`, `[null]`, "narrowing"},

		// Changes that make the API server reject objects.
		"listToMap":      {list + `}`, list + `, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}`, `[{"k": "a"}, {"k": "a"}]`, "narrowing"},
		"fractions":      {`{type: number}`, `{type: integer}`, `1.5`, "narrowing"},
		"int32":          {`{type: integer}`, `{type: integer, format: int32}`, `5000000000`, "narrowing"},
		"portWithLimits": {`{type: string}`, `{x-kubernetes-int-or-string: true, pattern: ^a$, anyOf: [{type: integer}, {type: string}]}`, `"b"`, "narrowing"},

		// Changes that are allowed.
		"port":         {`{type: integer}`, port, `1`, ""},
		"portOfString": {`{type: string}`, port, `"a"`, ""},
		"portAsBefore": {`{x-kubernetes-int-or-string: true}`, port, `"a"`, ""},
		"quantity":     {`{type: integer}`, `{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}]}`, `1`, ""},
		"int64":        {`{type: integer}`, `{type: integer, format: int64}`, `9223372036854775807`, ""},
		"double":       {`{type: integer, format: int64}`, `{type: number, format: double}`, `5`, ""},
		"newDefault":   {`{type: object, properties: {k: {type: integer}}}`, `{type: object, properties: {k: {type: integer, default: 5}}}`, `{"k": 1}`, ""},
		"unknownNow":   {object, unknown, `{"k": 1}`, ""},
		"unknownBelow": {unknown, `{type: object, additionalProperties: ` + anything + `}`, `{"a": {"b": 1}}`, ""},
	}
}

// The severity that Compare returns for a field matches the effect on its value: values that the API server drops are
// lossy, values that it rejects are narrowing, and all others are allowed.
func TestCompareMatchesAPIServer(t *testing.T) {
	e := newEnv(t)
	changes := fieldChanges()
	names := slices.Sorted(maps.Keys(changes))
	define := func(schema func(fieldChange) string) *apiextensionsv1.CustomResourceDefinition {
		var fields []string
		for _, name := range names {
			fields = append(fields, name+": "+schema(changes[name]))
		}
		return e.define("Website", e.version("v1", "{type: object, properties: {spec: {type: object, properties: {"+strings.Join(fields, ", ")+"}}}}"))
	}
	before, after := define(func(c fieldChange) string { return c.before }), define(func(c fieldChange) string { return c.after })
	e.ensure(before)
	stored := map[string]*unstructured.Unstructured{}
	object := func(name, field string) *unstructured.Unstructured {
		obj := e.object("Website", "v1", name, nil)
		text := fmt.Appendf(nil, `{"apiVersion": %q, "kind": "Website", "metadata": {"namespace": "default", "name": %q}, "spec": {%q: %s}}`,
			obj.GetAPIVersion(), name, field, changes[field].value)
		if err := obj.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	for _, name := range names {
		stored[name] = e.create(object(strings.ToLower(name), name))
	}
	var refused *crd.ChangeError
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{after}); !errors.As(err, &refused) {
		t.Fatalf("the error is %v, want a refusal", err)
	}
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{after}, crd.AllowDataLoss(), crd.AllowNarrowing()); err != nil {
		t.Fatal(err)
	}
	valueOf := func(obj *unstructured.Unstructured, field string) string {
		spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
		value, found := spec[field]
		if !found {
			return "nothing"
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	// The API server uses the new schema a moment after the definition was written.
	clustertest.Eventually(t, func() string {
		live, err := client.GetLive(t.Context(), e.client, stored["canary"])
		if err != nil {
			return err.Error()
		}
		if got := valueOf(live, "canary"); got != "{}" {
			return "the canary has " + got
		}
		return ""
	})
	for _, name := range names {
		// The write does not change the field.
		live, err := client.GetLive(t.Context(), e.client, stored[name])
		if err != nil {
			t.Fatal(err)
		}
		changed := live.DeepCopy()
		changed.SetAnnotations(map[string]string{"written": time.Now().Format(time.RFC3339)})
		_, touchErr := client.Patch(t.Context(), e.client, live, client.MergeFrom(live, changed))
		if live, err = client.GetLive(t.Context(), e.client, stored[name]); err != nil {
			t.Fatal(err)
		}
		_, freshErr := client.Create(t.Context(), e.client, object("fresh", name), client.DryRun())
		lost, refusedNow := valueOf(live, name) != valueOf(stored[name], name), freshErr != nil

		said := ""
		for _, p := range refused.Problems {
			path, _ := strings.CutPrefix(p.Path, "v1: spec.")
			if field := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })[0]; field == name && (said == "" || severityOf(p) == "lossy") {
				said = severityOf(p)
			}
		}
		t.Logf("%-16s said %-10q lost %-5t (%s -> %s) refused %t (touch: %v)", name, said, lost, valueOf(stored[name], name), valueOf(live, name), refusedNow, touchErr)
		if said != changes[name].want {
			t.Errorf("%s: Compare says %q, want %q", name, said, changes[name].want)
		}
		if lost && said != "lossy" || refusedNow && said == "" {
			t.Errorf("%s: Compare says %q: it was lost: %t (%s became %s), it is refused: %v", name, said,
				lost, valueOf(stored[name], name), valueOf(live, name), freshErr)
		}
	}
}

// Fields that exist only in another version than the stored one are dropped when they are written.
func TestFieldsOutsideStoredVersionAreDropped(t *testing.T) {
	e := newEnv(t)
	none := `{type: object, properties: {spec: {type: object}}}`
	e.ensure(e.define("Website", e.version("v1", none)))
	next := e.define("Website", e.version("v1", none, stored), e.version("v2", host))
	_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next})
	var refused *crd.ChangeError
	if !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Path != "v2 to v1: spec.host" {
		t.Errorf("the error is %v, want a refusal for spec.host", err)
	}
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next}, crd.AllowDataLoss("v2 to v1: spec.host")); err != nil {
		t.Fatal(err)
	}
	created := e.create(e.object("Website", "v2", "a", map[string]any{"host": "a"}))
	live, err := client.GetLive(t.Context(), e.client, created)
	if err != nil {
		t.Fatal(err)
	}
	if value, found, _ := unstructured.NestedString(live.Object, "spec", "host"); found {
		t.Errorf("spec.host is %q: Compare has no reason to refuse", value)
	}
}

// A status that was written with the object stays when it becomes a subresource, but writes of the object ignore it from then
// on, which Compare names. When the subresource is removed again, the next replacement of the object removes the status.
func TestStatusBecomesSubresource(t *testing.T) {
	e := newEnv(t)
	const schema = `{type: object, properties: {spec: {type: object, properties: {host: {type: string}}}, status: {type: object, properties: {url: {type: string}}}}}`
	plain := e.define("Website", e.version("v1", schema))
	split := e.define("Website", e.version("v1", schema, func(v *crdtest.Version) { v.Status = true }))
	e.ensure(plain)
	obj := e.object("Website", "v1", "a", nil)
	obj.Object["status"] = map[string]any{"url": "http://a"}
	obj = e.create(obj)
	url := func() string {
		live, err := client.GetLive(t.Context(), e.client, obj)
		if err != nil {
			t.Fatal(err)
		}
		url, _, _ := unstructured.NestedString(live.Object, "status", "url")
		return url
	}
	replace := func() { // as a client that does not know the status
		live, err := client.GetLive(t.Context(), e.client, obj)
		if err != nil {
			t.Fatal(err)
		}
		delete(live.Object, "status")
		if _, err := client.Update(t.Context(), e.client, live); err != nil {
			t.Fatal(err)
		}
	}
	_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{split})
	e.wantError(err, "narrowing: spec.versions[v1].subresources.status", "would ignore their status silently")
	_, err = crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{split}, crd.AllowNarrowing())
	if err != nil {
		t.Fatal(err)
	}
	// The API server uses the change a moment after the definition was written.
	clustertest.Eventually(t, func() string {
		fresh := e.object("Website", "v1", "fresh", nil)
		fresh.Object["status"] = map[string]any{"url": "http://fresh"}
		created, err := client.Create(t.Context(), e.client, fresh, client.DryRun())
		if err != nil {
			return err.Error()
		}
		if _, found := created.Object["status"]; found {
			return "the status is still written with the object"
		}
		return ""
	})
	if replace(); url() != "http://a" {
		t.Errorf("the status has %q, want the one from before", url())
	}
	_, err = crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{plain})
	e.wantError(err, "narrowing: spec.versions[v1].subresources.status", "replaces its status too")
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{plain}, crd.AllowNarrowing()); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() string {
		if replace(); url() != "" {
			return "the status has " + url()
		}
		return ""
	})
}

// The functions of package crd do not read from the client's informers, which may be stale: here the informer has
// stopped at the first definition.
func TestEnsureReadsFromAPIServer(t *testing.T) {
	e := newEnv(t)
	definitions, err := informer.New(informer.Config[*unstructured.Unstructured]{
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](e.client.Cluster(), kube.Selection{Kind: definitionKind()}),
		Logger:    clustertest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer definitions.Join(t.Context())()
	c, err := e.client.With(func(config *client.Config) { config.Informers = []client.Informer{definitions} })
	if err != nil {
		t.Fatal(err)
	}
	d := e.define("Website", e.version("v1", host))
	d.Labels = map[string]string{"app": "shop"}
	ensure := func(want client.ObjectOutcome) {
		t.Helper()
		ensured, err := crd.Ensure(t.Context(), c, []*apiextensionsv1.CustomResourceDefinition{d})
		if err != nil || ensured[0].Outcome != want || e.live(d.Name).Labels["app"] != "shop" {
			t.Errorf("it is %+v, %v, want %s; its labels are %v", ensured, err, want, e.live(d.Name).Labels)
		}
	}
	ensure(client.Created)
	created := e.live(d.Name).ResourceVersion
	clustertest.Eventually(t, func() string {
		if obj, found, err := definitions.Get(kube.Key{Name: d.Name}); err != nil || !found || obj.GetResourceVersion() != created {
			return "the informer does not show it"
		}
		return ""
	})
	gate := make(chan struct{})
	held := make(chan struct{})
	var once sync.Once
	defer definitions.Subscribe(func(c informer.Change) {
		if c.Type == informer.Updated { // later changes are not shown
			once.Do(func() { close(held) })
			<-gate
		}
	})()
	defer close(gate) // before the informer has to stop
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { d.Annotations = map[string]string{"a": "b"} })
	<-held
	if err := crd.Remove(t.Context(), c, d.Name); err != nil {
		t.Fatal(err)
	}
	ensure(client.Created)
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { delete(d.Labels, "app") })
	ensure(client.Updated)
	if err := crd.WaitEstablished(t.Context(), c, d.Name); err != nil {
		t.Error(err)
	}
}
