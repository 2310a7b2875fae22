package crds

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/applyschema"
)

// publishedSchema returns the schema that the server publishes for a kind, in version 3 of OpenAPI. metadata is the
// name of the schema of ObjectMeta.
func publishedSchema(structural *schema.Structural, metadata string) *spec.Schema {
	published := structural.Unfold().ToKubeOpenAPI()
	addObjectFields(published, metadata)
	addEmbeddedFields(published, metadata)
	return published
}

// typesOf returns the schema of server-side apply. As in the real server, it is derived from the published schema.
func typesOf(structural *schema.Structural) (*typed.ParseableType, error) {
	const root = "root" // cannot be the name of a type of metadata
	published := publishedSchema(structural, applyschema.ObjectMeta)
	types, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{root: published}, false)
	if err != nil {
		return nil, err
	}
	parser := &typed.Parser{}
	parser.Schema.Types = slices.Concat(types.Types, applyschema.Types(applyschema.ObjectMeta))
	result := parser.Type(root)
	return &result, nil
}

// addObjectFields adds the fields of all objects to the schema of one.
func addObjectFields(s *spec.Schema, metadata string) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema("#/components/schemas/" + metadata))
}

// addEmbeddedFields adds the fields of all objects to the schemas of embedded resources.
func addEmbeddedFields(s *spec.Schema, metadata string) {
	if s == nil {
		return
	}
	for name, property := range s.Properties {
		addEmbeddedFields(&property, metadata)
		s.Properties[name] = property
	}
	if s.Items != nil {
		addEmbeddedFields(s.Items.Schema, metadata)
	}
	if s.AdditionalProperties != nil {
		addEmbeddedFields(s.AdditionalProperties.Schema, metadata)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); embedded {
		addObjectFields(s, metadata)
	}
}
