package crd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel-go/evenkeel/crd"
)

// definition returns one of kind Website.
func definition(tb testing.TB, change func(*apiextensionsv1.CustomResourceDefinition), versions ...crd.Version) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	d, err := crd.New(crd.Definition{Group: "shop.example.com", Kind: "Website", Versions: versions})
	if err != nil {
		tb.Fatal(err)
	}
	if change != nil {
		change(d)
	}
	return d
}

func schemaOf(tb testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	tb.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.Unmarshal([]byte(text), props); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return props
}

// The schemas are those of a field f, from one to the other.
func TestCompareSchemas(t *testing.T) {
	t.Parallel()
	const (
		anyValue = `{x-kubernetes-preserve-unknown-fields: true}`
		anyKeys  = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
		number   = `{type: object, properties: {k: {type: integer}}}`
	)
	for name, test := range map[string]struct {
		before, after string
		want          []string // "severity: path"
	}{
		"nothing":              {`{type: string}`, `{type: string, description: new}`, nil},
		"a property more":      {number, `{type: object, properties: {k: {type: integer}, m: {type: string, enum: [a]}}}`, nil},
		"a property less":      {number, `{type: object}`, []string{"lossy: v1: f.k"}},
		"kept though unnamed":  {number, anyKeys, nil},
		"a map now":            {number, `{type: object, additionalProperties: {type: integer}}`, nil},
		"a map of others":      {number, `{type: object, additionalProperties: {type: string}}`, []string{"lossy: v1: f.k"}},
		"no map any longer":    {`{type: object, additionalProperties: {type: integer}}`, `{type: object}`, []string{"lossy: v1: f"}},
		"a map of any":         {`{type: object, additionalProperties: true}`, `{type: object, additionalProperties: {type: string}}`, []string{"narrowing: v1: f[*]"}},
		"a map that has names": {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: {type: integer}, properties: {k: {type: string}}}`, []string{"lossy: v1: f.k"}},
		"values of a map":      {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: {type: integer, maximum: 3}}`, []string{"narrowing: v1: f[*]"}},
		"items of a list":      {`{type: array, items: {type: object, properties: {k: {type: integer}}}}`, `{type: array, items: {type: object}}`, []string{"lossy: v1: f[*].k"}},
		"a map of any now":     {`{type: object, additionalProperties: {type: object, properties: {k: {type: integer}}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*].k"}},
		"a map of any lists":   {`{type: object, additionalProperties: {type: array, items: {type: object, properties: {k: {type: integer}}}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*][*].k"}},
		"unknown in any":       {anyKeys, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*]"}},
		"maps in any":          {`{type: object, additionalProperties: {type: object, additionalProperties: {type: string}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*]"}},
		"a map of scalars":     {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: true}`, nil},
		"items keep unknown":   {`{type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object}}`, `{type: array, items: {type: object}}`, []string{"lossy: v1: f[*]"}},
		"lists keep unknown":   {`{type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}`, `{type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object}}`, nil},
		"a list of any":        {anyValue, `{type: array, items: {type: string}}`, []string{"lossy: v1: f", "lossy: v1: f[*]"}},

		"a type":               {`{type: string}`, `{type: integer}`, []string{"lossy: v1: f"}},
		"a type below":         {number, `{type: object, properties: {k: {type: object}}}`, []string{"lossy: v1: f.k"}},
		"integer to number":    {`{type: integer}`, `{type: number}`, nil},
		"number to integer":    {`{type: number}`, `{type: integer}`, []string{"narrowing: v1: f"}},
		"string to both":       {`{type: string}`, `{x-kubernetes-int-or-string: true}`, nil},
		"both to string":       {`{x-kubernetes-int-or-string: true}`, `{type: string}`, []string{"lossy: v1: f"}},
		"anything to string":   {anyValue, `{type: string}`, []string{"lossy: v1: f"}},
		"anything to a map":    {anyValue, `{type: object, additionalProperties: ` + anyValue + `}`, []string{"lossy: v1: f"}},
		"anything to object":   {anyValue, number, []string{"lossy: v1: f", "narrowing: v1: f"}},
		"string to anything":   {`{type: string}`, anyValue, nil},
		"unknown fields":       {anyKeys, number, []string{"lossy: v1: f"}},
		"named among unknown":  {anyKeys, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: integer}}}`, []string{"lossy: v1: f.k"}},
		"objects among them":   {anyKeys, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: object}}}`, []string{"lossy: v1: f.k", "narrowing: v1: f.k"}},
		"unknown to a map":     {anyKeys, `{type: object, additionalProperties: {type: string}}`, []string{"lossy: v1: f[*]"}},
		"unknown fields now":   {number, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: integer}}}`, nil},
		"both, with types":     {`{type: integer}`, `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, nil},
		"both, as before":      {`{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, `{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}]}`, nil},
		"both, and a limit":    {`{type: integer}`, `{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maximum: 3}]}`, []string{"narrowing: v1: f"}},
		"no embedded object":   {`{type: object, x-kubernetes-embedded-resource: true, properties: {k: {type: integer}}}`, number, []string{"lossy: v1: f"}},
		"an embedded object":   {number, `{type: object, x-kubernetes-embedded-resource: true, properties: {k: {type: integer}}}`, []string{"narrowing: v1: f"}},
		"embedded, unknown":    {anyKeys, `{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`, []string{"lossy: v1: f"}},
		"embedded, as ever":    {`{type: object, x-kubernetes-embedded-resource: true, properties: {kind: {type: string}, k: {type: integer}}}`, `{type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object}}}`, []string{"lossy: v1: f.k"}},
		"a null":               {`{type: string, nullable: true}`, `{type: string}`, []string{"lossy: v1: f"}},
		"a null, by default":   {`{type: string, nullable: true}`, `{type: string, default: a}`, []string{"lossy: v1: f"}},
		"a null in a list":     {`{type: array, items: {type: string, nullable: true}}`, `{type: array, items: {type: string}}`, []string{"narrowing: v1: f[*]"}},
		"nulls now":            {`{type: string}`, `{type: string, nullable: true}`, nil},
		"an enum":              {`{type: string}`, `{type: string, enum: [a]}`, []string{"narrowing: v1: f"}},
		"an enum with less":    {`{type: string, enum: [a, b]}`, `{type: string, enum: [b, c]}`, []string{"narrowing: v1: f"}},
		"an enum with more":    {`{type: string, enum: [a]}`, `{type: string, enum: [b, a]}`, nil},
		"no enum":              {`{type: string, enum: [a]}`, `{type: string}`, nil},
		"limits, all":          {`{type: string}`, `{type: string, maxLength: 5, minLength: 1, pattern: a, format: date}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"limits of lists":      {`{type: array, items: {type: string}}`, `{type: array, items: {type: string}, maxItems: 5, minItems: 1, uniqueItems: true}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"limits of maps":       {`{type: object}`, `{type: object, maxProperties: 5, minProperties: 1}`, []string{"narrowing: v1: f", "narrowing: v1: f"}},
		"no limits":            {`{type: integer, maximum: 9, minimum: 1, multipleOf: 2}`, `{type: integer}`, nil},
		"wider limits":         {`{type: integer, maximum: 9, minimum: 1, format: int32}`, `{type: integer, maximum: 10, minimum: 0, format: int64}`, nil},
		"wider and exclusive":  {`{type: integer, maximum: 9, minimum: 1}`, `{type: integer, maximum: 10, exclusiveMaximum: true, minimum: 0, exclusiveMinimum: true}`, nil},
		"exclusive":            {`{type: integer, maximum: 9, minimum: 1}`, `{type: integer, maximum: 9, exclusiveMaximum: true, minimum: 1, exclusiveMinimum: true}`, []string{"narrowing: v1: f", "narrowing: v1: f"}},
		"formats of all":       {`{type: integer}`, `{type: integer, format: int64}`, nil},
		"a wider format":       {`{type: integer, format: int64}`, `{type: number, format: double}`, nil},
		"a format of some":     {`{type: integer, format: int64}`, `{type: integer, format: int32}`, []string{"narrowing: v1: f"}},
		"a limit of nothing":   {`{type: string}`, `{type: string, minLength: 0}`, nil},
		"tighter limits":       {`{type: integer, maximum: 9, minimum: 1, multipleOf: 2}`, `{type: integer, maximum: 8, minimum: 2, multipleOf: 4}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"a required field":     {number, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"with a default":       {number, `{type: object, required: [k], properties: {k: {type: integer, default: 1}}}`, nil},
		"a new required field": {`{type: object}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"required as before":   {`{type: object, required: [k], properties: {k: {type: integer}}}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, nil},
		"a default lost":       {`{type: object, required: [k], properties: {k: {type: integer, default: 1}}}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"a list of different":  {`{type: array, items: {type: string}}`, `{type: array, items: {type: string}, x-kubernetes-list-type: set}`, []string{"narrowing: v1: f"}},
		"other keys": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			[]string{"narrowing: v1: f"},
		},
		"keys in another order": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b, a], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			nil,
		},
		"a list of one owner": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, properties: {a: {type: string}}}}`,
			`{type: array, items: {type: object, properties: {a: {type: string}}}}`,
			[]string{"narrowing: v1: f"},
		},
		"a set of one owner": {`{type: array, items: {type: string}, x-kubernetes-list-type: set}`, `{type: array, items: {type: string}, x-kubernetes-list-type: atomic}`, []string{"narrowing: v1: f"}},
		"an object of one":   {number, `{type: object, x-kubernetes-map-type: atomic, properties: {k: {type: integer}}}`, []string{"narrowing: v1: f"}},
		"an object of many":  {`{type: object, x-kubernetes-map-type: atomic, properties: {k: {type: integer}}}`, number, nil},
		"a default":          {number, `{type: object, properties: {k: {type: integer, default: 3}}}`, nil},
		"another default":    {`{type: object, properties: {k: {type: integer, default: 1}}}`, `{type: object, properties: {k: {type: integer, default: 3}}}`, nil},
		"a rule":             {`{type: integer}`, `{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, []string{"narrowing: v1: f"}},
		"the same rule":      {`{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, `{type: integer, x-kubernetes-validations: [{rule: self > 1, message: too small}]}`, nil},
		"no rule":            {`{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, `{type: integer}`, nil},
		"a rule to create":   {`{type: integer, x-kubernetes-validations: [{rule: self > oldSelf}]}`, `{type: integer, x-kubernetes-validations: [{rule: self > oldSelf, optionalOldSelf: true}]}`, []string{"narrowing: v1: f"}},
		"logic":              {`{type: integer}`, `{type: integer, anyOf: [{minimum: 1}], allOf: [{minimum: 1}], oneOf: [{minimum: 1}], not: {minimum: 9}}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"the same logic":     {`{type: integer, anyOf: [{minimum: 1}]}`, `{type: integer, anyOf: [{minimum: 1}]}`, nil},
		"no logic":           {`{type: integer, not: {minimum: 1}}`, `{type: integer}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := func(field string) *apiextensionsv1.CustomResourceDefinition {
				return definition(t, nil, crd.Version{Name: "v1", Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"f": *schemaOf(t, field)},
				}})
			}
			if diff := cmp.Diff(test.want, short(crd.Compare(at(test.before), at(test.after)))); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, crd.Compare(at(test.before), at(test.after)))
			}
		})
	}
}

// JSON has several ways to write one value, and the API server chooses its own.
func TestValuesAreComparedAndNotTheirSpelling(t *testing.T) {
	t.Parallel()
	at := func(values ...string) *apiextensionsv1.CustomResourceDefinition {
		field := apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
		for _, value := range values {
			field.Enum = append(field.Enum, apiextensionsv1.JSON{Raw: []byte(value)})
		}
		return definition(t, nil, crd.Version{Name: "v1", Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"f": field},
		}})
	}
	before := at(`"<"`, `{"a": 1, "b": [2]}`, `10`, `odd`)
	if problems := crd.Compare(before, at(`"\u003c"`, `{"b":[2],"a":1.0}`, `1e1`, `odd`)); len(problems) > 0 {
		t.Errorf("the same values have problems: %v", problems)
	}
	problems := crd.Compare(before, at(`"\u003e"`, `{"b":[2],"a":1.0}`, `1e1`, `odd`))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, `"<" would be refused`) {
		t.Errorf("the problems are %v", problems)
	}
}

func short(problems []crd.Problem) []string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("%s: %s", p.Severity, p.Path))
	}
	return lines
}

func TestCompareDefinitions(t *testing.T) {
	t.Parallel()
	type definitionOf = apiextensionsv1.CustomResourceDefinition
	const host = `{type: object, properties: {host: {type: string}}}`
	const none = `{type: object}`
	const strict = `{type: object, required: [host], properties: {host: {type: string, maxLength: 3}}}`
	v := func(name, text string, change ...func(*crd.Version)) crd.Version {
		version := crd.Version{Name: name, Schema: schemaOf(t, text)}
		for _, c := range change {
			c(&version)
		}
		return version
	}
	stored := func(v *crd.Version) { v.Storage = true }
	hidden := func(v *crd.Version) { v.NotServed = true }
	deprecated := func(v *crd.Version) { v.Deprecated = true }
	one := func(change func(*definitionOf)) *definitionOf { return definition(t, change, v("v1", host)) }
	several := func(versions ...crd.Version) *definitionOf { return definition(t, nil, versions...) }
	converted := func(d *definitionOf) *definitionOf {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: "Webhook"}
		return d
	}
	storedIn := func(d *definitionOf, versions ...string) *definitionOf {
		d.Status.StoredVersions = versions
		return d
	}
	for name, test := range map[string]struct {
		before, after *definitionOf
		want          []string
	}{
		"the group":  {one(nil), one(func(d *definitionOf) { d.Spec.Group = "other.example.com" }), []string{"impossible: spec.group"}},
		"the plural": {one(nil), one(func(d *definitionOf) { d.Spec.Names.Plural = "webs" }), []string{"impossible: spec.names.plural"}},
		"the kind":   {one(nil), one(func(d *definitionOf) { d.Spec.Names.Kind = "Web" }), []string{"impossible: spec.names.kind"}},
		"the scope":  {one(nil), one(func(d *definitionOf) { d.Spec.Scope = "Cluster" }), []string{"impossible: spec.scope"}},
		"the scope of what was never used": {
			one(func(d *definitionOf) {
				d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: "NamesAccepted", Status: "False"}}
			}),
			one(func(d *definitionOf) { d.Spec.Scope, d.Spec.Names.Kind = "Cluster", "Web" }), nil,
		},
		"names for people": {one(nil), one(func(d *definitionOf) { d.Spec.Names.ShortNames = []string{"web"}; d.Spec.Names.Singular = "web" }), nil},
		"all unknown fields": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }), several(v("v1", none)),
			[]string{"lossy: spec.preserveUnknownFields", "lossy: v1: host"},
		},
		"all unknown fields, still": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }),
			definition(t, func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }, v("v1", none)), nil,
		},
		"a type where all is kept": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }),
			definition(t, func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }, v("v1", `{type: object, properties: {host: {type: integer}}}`)),
			[]string{"lossy: v1: host"},
		},
		"names of objects": {
			one(nil), several(v("v1", `{type: object, properties: {host: {type: string}, metadata: {type: object, properties: {name: {type: string, maxLength: 5}}}}}`)),
			[]string{"narrowing: v1: metadata.name"},
		},
		"metadata in the schema": {
			several(v("v1", `{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}}}`)), several(v("v1", none)), nil,
		},
		"no schema any longer": {one(nil), definition(t, nil, crd.Version{Name: "v1"}), nil},
		"a schema at last":     {definition(t, nil, crd.Version{Name: "v1"}), one(nil), []string{"lossy: v1: the object"}},
		"no status": {
			several(v("v1", host, func(v *crd.Version) { v.Status = true; v.Scale = &apiextensionsv1.CustomResourceSubresourceScale{} })), one(nil),
			[]string{"narrowing: spec.versions[v1].subresources.status", "narrowing: spec.versions[v1].subresources.scale"},
		},
		"no selectable field": {
			several(v("v1", host, func(v *crd.Version) { v.SelectableFields = []string{".host"} })), one(nil), []string{"narrowing: spec.versions[v1].selectableFields"},
		},
		"what a status gains": {one(nil), several(v("v1", host, func(v *crd.Version) { v.Status = true; v.SelectableFields = []string{".host"} })), nil},

		"a larger one more":        {one(nil), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v1: host", "lossy: v2 to v1: host"}},
		"a larger one, not stored": {several(v("v1", none)), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v2 to v1: host"}},
		"what is not stored":       {several(v("v1", none, stored), v("v2", none)), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v2 to v1: host"}},
		"not stored, as ever":      {several(v("v1", none, stored), v("v2", host)), several(v("v1", none, stored), v("v2", host, deprecated)), nil},
		"a larger one, hidden":     {several(v("v1", none)), several(v("v1", none, stored), v("v2", host, hidden)), nil},
		"a larger one, converts":   {several(v("v1", none)), converted(several(v("v1", none, stored), v("v2", host))), nil},
		"a version more":           {one(nil), several(v("v1", host, stored), v("v2", host)), nil},
		"a smaller one more":       {one(nil), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v1 to v2: host"}},
		"a stricter one more":      {one(nil), several(v("v1", host, stored), v("v2", strict)), nil},
		"a smaller one, hidden":    {one(nil), several(v("v1", host, stored), v("v2", none, hidden)), nil},
		"a smaller one, shown":     {several(v("v1", host, stored), v("v2", none, hidden)), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v1 to v2: host"}},
		"a smaller one, as ever":   {several(v("v1", host, stored), v("v2", none)), several(v("v1", host, stored), v("v2", none, deprecated)), nil},
		"a smaller one, converts":  {one(nil), converted(several(v("v1", host, stored), v("v2", none))), nil},
		"stored in another":        {one(nil), several(v("v1", host), v("v2", host, stored)), nil},
		"stored in a new one":      {one(nil), several(v("v1", host), v("v2", none, stored)), []string{"lossy: v1 to v2: host"}},
		"stored in a smaller one":  {several(v("v1", host, stored), v("v2", none)), several(v("v1", host), v("v2", none, stored)), []string{"lossy: v1 to v2: host"}},
		"converted to a smaller":   {several(v("v1", host, stored), v("v2", none)), converted(several(v("v1", host), v("v2", none, stored))), nil},
		"no conversion any longer": {
			converted(several(v("v1", host, stored), v("v2", none))), several(v("v1", host, stored), v("v2", none)), []string{"lossy: spec.conversion"},
		},
		"a conversion of one":           {converted(one(nil)), one(nil), nil},
		"a conversion of one, and more": {converted(one(nil)), several(v("v1", host, stored), v("v2", host)), nil},
		"a conversion that has ended":   {storedIn(converted(several(v("v1", host, deprecated), v("v2", host, stored))), "v2"), several(v("v2", host)), nil},
		"no conversion, and less": {
			converted(several(v("v1", host, stored), v("v2", host))), several(v("v1", host), v("v2", none, stored)),
			[]string{"lossy: v2: host", "lossy: spec.conversion", "lossy: v1 to v2: host"},
		},
		"the storage version gone": {several(v("v1", host, stored), v("v2", host)), several(v("v2", host)), []string{"impossible: spec.versions[v1]"}},
		"an older one gone": {
			storedIn(several(v("v1", host), v("v2", host, stored)), "v1", "v2"), several(v("v2", host)), []string{"impossible: spec.versions[v1]"},
		},
		"an older one gone, after all was written again": {
			storedIn(several(v("v1", host), v("v2", host, stored)), "v2"), several(v("v2", host)), []string{"narrowing: spec.versions[v1]"},
		},
		"a deprecated one gone":           {storedIn(several(v("v1", host, deprecated), v("v2", host, stored)), "v2"), several(v("v2", host)), nil},
		"one that was hidden gone":        {storedIn(several(v("v1", host, hidden), v("v2", host, stored)), "v2"), several(v("v2", host)), nil},
		"one hidden":                      {several(v("v1", host), v("v2", host, stored)), several(v("v1", host, hidden), v("v2", host, stored)), []string{"narrowing: spec.versions[v1]"}},
		"a deprecated one hidden":         {several(v("v1", host, deprecated), v("v2", host, stored)), several(v("v1", host, hidden), v("v2", host, stored)), nil},
		"a field of a served version":     {several(v("v1", host, stored), v("v2", host)), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v2: host"}},
		"a field of a hidden one, stored": {storedIn(several(v("v1", host, hidden), v("v2", host, stored)), "v1", "v2"), several(v("v1", none, hidden), v("v2", host, stored)), []string{"lossy: v1: host"}},
		"a field of a hidden one":         {several(v("v1", host, hidden), v("v2", host, stored)), several(v("v1", none, hidden), v("v2", host, stored)), nil},
		"the worst first": {
			storedIn(several(v("v1", host), v("v2", host, stored), v("v3", host)), "v1", "v2"),
			several(v("v2", none, stored), v("v3", host, hidden)),
			[]string{"impossible: spec.versions[v1]", "lossy: v2: host", "narrowing: spec.versions[v3]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := test.before.DeepCopy(), test.after.DeepCopy()
			if diff := cmp.Diff(test.want, short(crd.Compare(test.before, test.after))); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, crd.Compare(test.before, test.after))
			}
			if diff := cmp.Diff([]any{before, after}, []any{test.before, test.after}); diff != "" {
				t.Errorf("it has changed the definitions (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleCompare() {
	at := func(spec apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
		definition, err := crd.New(crd.Definition{Group: "shop.example.com", Kind: "Website", Versions: []crd.Version{{
			Name:   "v1",
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
		}}})
		if err != nil {
			panic(err)
		}
		return definition
	}
	installed := at(apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"host": {Type: "string"}, "replicas": {Type: "integer"},
	}})
	next := at(apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"replicas": {Type: "integer", Maximum: new(5.0)}, "paused": {Type: "boolean"},
	}})
	for _, problem := range crd.Compare(installed, next) {
		fmt.Println(problem)
	}
	// Output:
	// lossy: v1: spec.host: the property is removed, and what objects have there would be dropped: keep it, and mark it as deprecated in its description
	// narrowing: v1: spec.replicas: maximum is 5, and was unlimited
}
