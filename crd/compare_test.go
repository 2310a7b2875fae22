package crd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
)

// definition returns a definition of kind Website.
func definition(tb testing.TB, change func(*apiextensionsv1.CustomResourceDefinition), versions ...crdtest.Version) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	d := crdtest.Define("shop.example.com", "Website", versions...)
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

// The schemas of each case are those of field f, before and after.
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
		"description only":                               {`{type: string}`, `{type: string, description: new}`, nil},
		"property added":                                 {number, `{type: object, properties: {k: {type: integer}, m: {type: string, enum: [a]}}}`, nil},
		"property removed":                               {number, `{type: object}`, []string{"lossy: v1: f.k"}},
		"properties become unknown fields":               {number, anyKeys, nil},
		"object becomes map":                             {number, `{type: object, additionalProperties: {type: integer}}`, nil},
		"object becomes map of another type":             {number, `{type: object, additionalProperties: {type: string}}`, []string{"lossy: v1: f.k"}},
		"map becomes object":                             {`{type: object, additionalProperties: {type: integer}}`, `{type: object}`, []string{"lossy: v1: f"}},
		"map of any value becomes map of strings":        {`{type: object, additionalProperties: true}`, `{type: object, additionalProperties: {type: string}}`, []string{"narrowing: v1: f[*]"}},
		"map gets a property":                            {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: {type: integer}, properties: {k: {type: string}}}`, []string{"lossy: v1: f.k"}},
		"limit on map values":                            {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: {type: integer, maximum: 3}}`, []string{"narrowing: v1: f[*]"}},
		"property of list items removed":                 {`{type: array, items: {type: object, properties: {k: {type: integer}}}}`, `{type: array, items: {type: object}}`, []string{"lossy: v1: f[*].k"}},
		"map of objects becomes map of any value":        {`{type: object, additionalProperties: {type: object, properties: {k: {type: integer}}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*].k"}},
		"map of lists becomes map of any value":          {`{type: object, additionalProperties: {type: array, items: {type: object, properties: {k: {type: integer}}}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*][*].k"}},
		"unknown fields become map of any value":         {anyKeys, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*]"}},
		"map of maps becomes map of any value":           {`{type: object, additionalProperties: {type: object, additionalProperties: {type: string}}}`, `{type: object, additionalProperties: true}`, []string{"lossy: v1: f[*]"}},
		"map of scalars becomes map of any value":        {`{type: object, additionalProperties: {type: integer}}`, `{type: object, additionalProperties: true}`, nil},
		"list no longer preserves unknown fields":        {`{type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object}}`, `{type: array, items: {type: object}}`, []string{"lossy: v1: f[*]"}},
		"list preserves unknown fields instead of items": {`{type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}`, `{type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object}}`, nil},
		"any value becomes list":                         {anyValue, `{type: array, items: {type: string}}`, []string{"lossy: v1: f", "lossy: v1: f[*]"}},

		"another type":                            {`{type: string}`, `{type: integer}`, []string{"lossy: v1: f"}},
		"another type of a property":              {number, `{type: object, properties: {k: {type: object}}}`, []string{"lossy: v1: f.k"}},
		"integer to number":                       {`{type: integer}`, `{type: number}`, nil},
		"number to integer":                       {`{type: number}`, `{type: integer}`, []string{"narrowing: v1: f"}},
		"string to int-or-string":                 {`{type: string}`, `{x-kubernetes-int-or-string: true}`, nil},
		"int-or-string to string":                 {`{x-kubernetes-int-or-string: true}`, `{type: string}`, []string{"lossy: v1: f"}},
		"any value to string":                     {anyValue, `{type: string}`, []string{"lossy: v1: f"}},
		"any value to map":                        {anyValue, `{type: object, additionalProperties: ` + anyValue + `}`, []string{"lossy: v1: f"}},
		"any value to object":                     {anyValue, number, []string{"lossy: v1: f", "narrowing: v1: f"}},
		"string to any value":                     {`{type: string}`, anyValue, nil},
		"unknown fields no longer preserved":      {anyKeys, number, []string{"lossy: v1: f"}},
		"property added to unknown fields":        {anyKeys, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: integer}}}`, []string{"lossy: v1: f.k"}},
		"object property added to unknown fields": {anyKeys, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: object}}}`, []string{"lossy: v1: f.k", "narrowing: v1: f.k"}},
		"unknown fields become map":               {anyKeys, `{type: object, additionalProperties: {type: string}}`, []string{"lossy: v1: f[*]"}},
		"unknown fields preserved":                {number, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {k: {type: integer}}}`, nil},
		"int-or-string with type list":            {`{type: integer}`, `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, nil},
		"int-or-string with other type list":      {`{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, `{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}]}`, nil},
		"int-or-string with type list and limit":  {`{type: integer}`, `{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maximum: 3}]}`, []string{"narrowing: v1: f"}},
		"embedded object becomes object":          {`{type: object, x-kubernetes-embedded-resource: true, properties: {k: {type: integer}}}`, number, []string{"lossy: v1: f"}},
		"object becomes embedded object":          {number, `{type: object, x-kubernetes-embedded-resource: true, properties: {k: {type: integer}}}`, []string{"narrowing: v1: f"}},
		"unknown fields become embedded object":   {anyKeys, `{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`, []string{"lossy: v1: f"}},
		"property of embedded object removed":     {`{type: object, x-kubernetes-embedded-resource: true, properties: {kind: {type: string}, k: {type: integer}}}`, `{type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object}}}`, []string{"lossy: v1: f.k"}},
		"nullable removed":                        {`{type: string, nullable: true}`, `{type: string}`, []string{"lossy: v1: f"}},
		"nullable replaced by default":            {`{type: string, nullable: true}`, `{type: string, default: a}`, []string{"lossy: v1: f"}},
		"nullable removed from items":             {`{type: array, items: {type: string, nullable: true}}`, `{type: array, items: {type: string}}`, []string{"narrowing: v1: f[*]"}},
		"nullable added":                          {`{type: string}`, `{type: string, nullable: true}`, nil},
		"enum added":                              {`{type: string}`, `{type: string, enum: [a]}`, []string{"narrowing: v1: f"}},
		"enum value removed":                      {`{type: string, enum: [a, b]}`, `{type: string, enum: [b, c]}`, []string{"narrowing: v1: f"}},
		"enum value added":                        {`{type: string, enum: [a]}`, `{type: string, enum: [b, a]}`, nil},
		"enum removed":                            {`{type: string, enum: [a]}`, `{type: string}`, nil},
		"string limits added":                     {`{type: string}`, `{type: string, maxLength: 5, minLength: 1, pattern: a, format: date}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"list limits added":                       {`{type: array, items: {type: string}}`, `{type: array, items: {type: string}, maxItems: 5, minItems: 1, uniqueItems: true}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"map limits added":                        {`{type: object}`, `{type: object, maxProperties: 5, minProperties: 1}`, []string{"narrowing: v1: f", "narrowing: v1: f"}},
		"limits removed":                          {`{type: integer, maximum: 9, minimum: 1, multipleOf: 2}`, `{type: integer}`, nil},
		"wider limits":                            {`{type: integer, maximum: 9, minimum: 1, format: int32}`, `{type: integer, maximum: 10, minimum: 0, format: int64}`, nil},
		"wider and exclusive":                     {`{type: integer, maximum: 9, minimum: 1}`, `{type: integer, maximum: 10, exclusiveMaximum: true, minimum: 0, exclusiveMinimum: true}`, nil},
		"limits become exclusive":                 {`{type: integer, maximum: 9, minimum: 1}`, `{type: integer, maximum: 9, exclusiveMaximum: true, minimum: 1, exclusiveMinimum: true}`, []string{"narrowing: v1: f", "narrowing: v1: f"}},
		"format that allows every integer":        {`{type: integer}`, `{type: integer, format: int64}`, nil},
		"wider format":                            {`{type: integer, format: int64}`, `{type: number, format: double}`, nil},
		"narrower format":                         {`{type: integer, format: int64}`, `{type: integer, format: int32}`, []string{"narrowing: v1: f"}},
		"limit of zero":                           {`{type: string}`, `{type: string, minLength: 0}`, nil},
		"tighter limits":                          {`{type: integer, maximum: 9, minimum: 1, multipleOf: 2}`, `{type: integer, maximum: 8, minimum: 2, multipleOf: 4}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"field becomes required":                  {number, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"field with default becomes required":     {number, `{type: object, required: [k], properties: {k: {type: integer, default: 1}}}`, nil},
		"required field added":                    {`{type: object}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"required field unchanged":                {`{type: object, required: [k], properties: {k: {type: integer}}}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, nil},
		"default of required field removed":       {`{type: object, required: [k], properties: {k: {type: integer, default: 1}}}`, `{type: object, required: [k], properties: {k: {type: integer}}}`, []string{"narrowing: v1: f.k"}},
		"list becomes set":                        {`{type: array, items: {type: string}}`, `{type: array, items: {type: string}, x-kubernetes-list-type: set}`, []string{"narrowing: v1: f"}},
		"other list map keys": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			[]string{"narrowing: v1: f"},
		},
		"list map keys in another order": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b, a], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}`,
			nil,
		},
		"map list becomes atomic": {
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, properties: {a: {type: string}}}}`,
			`{type: array, items: {type: object, properties: {a: {type: string}}}}`,
			[]string{"narrowing: v1: f"},
		},
		"set becomes atomic":        {`{type: array, items: {type: string}, x-kubernetes-list-type: set}`, `{type: array, items: {type: string}, x-kubernetes-list-type: atomic}`, []string{"narrowing: v1: f"}},
		"object becomes atomic":     {number, `{type: object, x-kubernetes-map-type: atomic, properties: {k: {type: integer}}}`, []string{"narrowing: v1: f"}},
		"object becomes granular":   {`{type: object, x-kubernetes-map-type: atomic, properties: {k: {type: integer}}}`, number, nil},
		"default added":             {number, `{type: object, properties: {k: {type: integer, default: 3}}}`, nil},
		"default changed":           {`{type: object, properties: {k: {type: integer, default: 1}}}`, `{type: object, properties: {k: {type: integer, default: 3}}}`, nil},
		"rule added":                {`{type: integer}`, `{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, []string{"narrowing: v1: f"}},
		"rule with another message": {`{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, `{type: integer, x-kubernetes-validations: [{rule: self > 1, message: too small}]}`, nil},
		"rule removed":              {`{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, `{type: integer}`, nil},
		"rule applies to creation":  {`{type: integer, x-kubernetes-validations: [{rule: self > oldSelf}]}`, `{type: integer, x-kubernetes-validations: [{rule: self > oldSelf, optionalOldSelf: true}]}`, []string{"narrowing: v1: f"}},
		"logical schemas added":     {`{type: integer}`, `{type: integer, anyOf: [{minimum: 1}], allOf: [{minimum: 1}], oneOf: [{minimum: 1}], not: {minimum: 9}}`, []string{"narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f", "narrowing: v1: f"}},
		"logical schema unchanged":  {`{type: integer, anyOf: [{minimum: 1}]}`, `{type: integer, anyOf: [{minimum: 1}]}`, nil},
		"logical schema removed":    {`{type: integer, not: {minimum: 1}}`, `{type: integer}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := func(field string) *apiextensionsv1.CustomResourceDefinition {
				return definition(t, nil, crdtest.Version{Name: "v1", Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"f": *schemaOf(t, field)},
				}})
			}
			if diff := cmp.Diff(test.want, short(crd.Compare(at(test.before), at(test.after)))); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, crd.Compare(at(test.before), at(test.after)))
			}
		})
	}
}

// The API server may spell a JSON value in another way than the definition.
func TestCompareIgnoresJSONSpelling(t *testing.T) {
	t.Parallel()
	at := func(values ...string) *apiextensionsv1.CustomResourceDefinition {
		field := apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
		for _, value := range values {
			field.Enum = append(field.Enum, apiextensionsv1.JSON{Raw: []byte(value)})
		}
		return definition(t, nil, crdtest.Version{Name: "v1", Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"f": field},
		}})
	}
	before := at(`"<"`, `{"a": 1, "b": [2]}`, `10`, `invalid`)
	if problems := crd.Compare(before, at(`"\u003c"`, `{"b":[2],"a":1.0}`, `1e1`, `invalid`)); len(problems) > 0 {
		t.Errorf("equal values have problems: %v", problems)
	}
	problems := crd.Compare(before, at(`"\u003e"`, `{"b":[2],"a":1.0}`, `1e1`, `invalid`))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, `"<" would be rejected`) {
		t.Errorf("the problems are %v", problems)
	}
}

func short(problems []crd.Problem) []string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, strings.TrimSuffix(p.String(), ": "+p.Message))
	}
	return lines
}

func TestCompareDefinitions(t *testing.T) {
	t.Parallel()
	type definitionOf = apiextensionsv1.CustomResourceDefinition
	const host = `{type: object, properties: {host: {type: string}}}`
	const none = `{type: object}`
	const strict = `{type: object, required: [host], properties: {host: {type: string, maxLength: 3}}}`
	v := func(name, text string, change ...func(*crdtest.Version)) crdtest.Version {
		version := crdtest.Version{Name: name, Schema: schemaOf(t, text)}
		for _, c := range change {
			c(&version)
		}
		return version
	}
	stored := func(v *crdtest.Version) { v.Storage = true }
	unserved := func(v *crdtest.Version) { v.NotServed = true }
	deprecated := func(v *crdtest.Version) { v.Deprecated = true }
	one := func(change func(*definitionOf)) *definitionOf { return definition(t, change, v("v1", host)) }
	several := func(versions ...crdtest.Version) *definitionOf { return definition(t, nil, versions...) }
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
		"group":  {one(nil), one(func(d *definitionOf) { d.Spec.Group = "other.example.com" }), []string{"impossible: spec.group"}},
		"plural": {one(nil), one(func(d *definitionOf) { d.Spec.Names.Plural = "webs" }), []string{"impossible: spec.names.plural"}},
		"kind":   {one(nil), one(func(d *definitionOf) { d.Spec.Names.Kind = "Web" }), []string{"impossible: spec.names.kind"}},
		"scope":  {one(nil), one(func(d *definitionOf) { d.Spec.Scope = "Cluster" }), []string{"impossible: spec.scope"}},
		"scope before the definition was established": {
			one(func(d *definitionOf) {
				d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: "NamesAccepted", Status: "False"}}
			}),
			one(func(d *definitionOf) { d.Spec.Scope, d.Spec.Names.Kind = "Cluster", "Web" }), nil,
		},
		"short and singular names": {one(nil), one(func(d *definitionOf) { d.Spec.Names.ShortNames = []string{"web"}; d.Spec.Names.Singular = "web" }), nil},
		"preserveUnknownFields removed": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }), several(v("v1", none)),
			[]string{"lossy: spec.preserveUnknownFields", "lossy: v1: host"},
		},
		"preserveUnknownFields kept": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }),
			definition(t, func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }, v("v1", none)), nil,
		},
		"type changed with preserveUnknownFields": {
			one(func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }),
			definition(t, func(d *definitionOf) { d.Spec.PreserveUnknownFields = true }, v("v1", `{type: object, properties: {host: {type: integer}}}`)),
			[]string{"lossy: v1: host"},
		},
		"limit on metadata.name": {
			one(nil), several(v("v1", `{type: object, properties: {host: {type: string}, metadata: {type: object, properties: {name: {type: string, maxLength: 5}}}}}`)),
			[]string{"narrowing: v1: metadata.name"},
		},
		"metadata removed from the schema": {
			several(v("v1", `{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}}}`)), several(v("v1", none)), nil,
		},
		"schema removed": {one(nil), definition(t, nil, crdtest.Version{Name: "v1"}), nil},
		"schema added":   {definition(t, nil, crdtest.Version{Name: "v1"}), one(nil), []string{"lossy: v1: the object"}},
		"subresources removed": {
			several(v("v1", host, func(v *crdtest.Version) { v.Status = true; v.Scale = true })), one(nil),
			[]string{"narrowing: spec.versions[v1].subresources.status", "narrowing: spec.versions[v1].subresources.scale"},
		},
		"selectable field removed": {
			several(v("v1", host, func(v *crdtest.Version) { v.SelectableFields = []string{".host"} })), one(nil), []string{"narrowing: spec.versions[v1].selectableFields"},
		},
		"status subresource added to a kind with a status": {
			one(func(d *apiextensionsv1.CustomResourceDefinition) { withStatus(d) }),
			one(func(d *apiextensionsv1.CustomResourceDefinition) {
				withStatus(d).Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
			}),
			[]string{"narrowing: spec.versions[v1].subresources.status"},
		},
		"subresources added": {one(nil), several(v("v1", host, func(v *crdtest.Version) { v.Status = true; v.SelectableFields = []string{".host"} })), nil},

		"new served version has more fields than the new storage version": {one(nil), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v1: host", "lossy: v2 to v1: host"}},
		"new version has more fields than the stored one":                 {several(v("v1", none)), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v2 to v1: host"}},
		"served version gets a field that is not stored":                  {several(v("v1", none, stored), v("v2", none)), several(v("v1", none, stored), v("v2", host)), []string{"lossy: v2 to v1: host"}},
		"field was not stored before either":                              {several(v("v1", none, stored), v("v2", host)), several(v("v1", none, stored), v("v2", host, deprecated)), nil},
		"new unserved version has more fields":                            {several(v("v1", none)), several(v("v1", none, stored), v("v2", host, unserved)), nil},
		"new version has more fields, with webhook":                       {several(v("v1", none)), converted(several(v("v1", none, stored), v("v2", host))), nil},
		"version added":                                          {one(nil), several(v("v1", host, stored), v("v2", host)), nil},
		"new version has fewer fields":                           {one(nil), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v1 to v2: host"}},
		"new version is stricter":                                {one(nil), several(v("v1", host, stored), v("v2", strict)), nil},
		"new unserved version has fewer fields":                  {one(nil), several(v("v1", host, stored), v("v2", none, unserved)), nil},
		"version with fewer fields becomes served":               {several(v("v1", host, stored), v("v2", none, unserved)), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v1 to v2: host"}},
		"version with fewer fields was served before":            {several(v("v1", host, stored), v("v2", none)), several(v("v1", host, stored), v("v2", none, deprecated)), nil},
		"new version has fewer fields, with webhook":             {one(nil), converted(several(v("v1", host, stored), v("v2", none))), nil},
		"another storage version":                                {one(nil), several(v("v1", host), v("v2", host, stored)), nil},
		"new storage version has fewer fields":                   {one(nil), several(v("v1", host), v("v2", none, stored)), []string{"lossy: v1 to v2: host"}},
		"another storage version has fewer fields":               {several(v("v1", host, stored), v("v2", none)), several(v("v1", host), v("v2", none, stored)), []string{"lossy: v1 to v2: host"}},
		"another storage version has fewer fields, with webhook": {several(v("v1", host, stored), v("v2", none)), converted(several(v("v1", host), v("v2", none, stored))), nil},
		"webhook removed": {
			converted(several(v("v1", host, stored), v("v2", none))), several(v("v1", host, stored), v("v2", none)), []string{"lossy: spec.conversion"},
		},
		"webhook of a single version removed":                {converted(one(nil)), one(nil), nil},
		"webhook of a single version removed, version added": {converted(one(nil)), several(v("v1", host, stored), v("v2", host)), nil},
		"webhook removed after migration":                    {storedIn(converted(several(v("v1", host, deprecated), v("v2", host, stored))), "v2"), several(v("v2", host)), nil},
		"webhook and fields removed": {
			converted(several(v("v1", host, stored), v("v2", host))), several(v("v1", host), v("v2", none, stored)),
			[]string{"lossy: v2: host", "lossy: spec.conversion", "lossy: v1 to v2: host"},
		},
		"storage version removed": {several(v("v1", host, stored), v("v2", host)), several(v("v2", host)), []string{"impossible: spec.versions[v1]"}},
		"stored version removed": {
			storedIn(several(v("v1", host), v("v2", host, stored)), "v1", "v2"), several(v("v2", host)), []string{"impossible: spec.versions[v1]"},
		},
		"version removed after migration": {
			storedIn(several(v("v1", host), v("v2", host, stored)), "v2"), several(v("v2", host)), []string{"narrowing: spec.versions[v1]"},
		},
		"deprecated version removed":                  {storedIn(several(v("v1", host, deprecated), v("v2", host, stored)), "v2"), several(v("v2", host)), nil},
		"unserved version removed":                    {storedIn(several(v("v1", host, unserved), v("v2", host, stored)), "v2"), several(v("v2", host)), nil},
		"version no longer served":                    {several(v("v1", host), v("v2", host, stored)), several(v("v1", host, unserved), v("v2", host, stored)), []string{"narrowing: spec.versions[v1]"}},
		"deprecated version no longer served":         {several(v("v1", host, deprecated), v("v2", host, stored)), several(v("v1", host, unserved), v("v2", host, stored)), nil},
		"field removed from served version":           {several(v("v1", host, stored), v("v2", host)), several(v("v1", host, stored), v("v2", none)), []string{"lossy: v2: host"}},
		"field removed from stored, unserved version": {storedIn(several(v("v1", host, unserved), v("v2", host, stored)), "v1", "v2"), several(v("v1", none, unserved), v("v2", host, stored)), []string{"lossy: v1: host"}},
		"field removed from unserved version":         {several(v("v1", host, unserved), v("v2", host, stored)), several(v("v1", none, unserved), v("v2", host, stored)), nil},
		"worst problem first": {
			storedIn(several(v("v1", host), v("v2", host, stored), v("v3", host)), "v1", "v2"),
			several(v("v2", none, stored), v("v3", host, unserved)),
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
				t.Errorf("Compare changed its arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleCompare() {
	at := func(spec apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
		return crdtest.Define("shop.example.com", "Website", crdtest.Version{
			Name:   "v1",
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
		})
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
	// lossy: v1: spec.host: the property is removed, and the values that objects have would be dropped: keep it, and mark it as deprecated in its description
	// narrowing: v1: spec.replicas: maximum is 5, was unlimited
}

// withStatus adds a status to the schema of the first version, and returns the version.
func withStatus(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionVersion {
	version := &d.Spec.Versions[0]
	version.Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	return version
}
