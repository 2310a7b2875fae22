package crds

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/openapi"
)

// Compiler compiles schemas, and keeps the compiled ones by the hash of their content. The zero value is ready to use,
// and safe for concurrent use. Servers and their forks share one.
type Compiler struct {
	mu      sync.Mutex
	schemas map[[sha256.Size]byte]*compiled
}

// compiled is the schema of one version of a custom resource. It does not change.
type compiled struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	// status validates the status alone; nil if the schema has none.
	status validation.SchemaValidator
	// embedded is true if the schema has embedded resources, keyed if it has lists that are sets or maps. Other schemas
	// do not need some of the checks.
	embedded, keyed bool
	// types is the schema of server-side apply.
	types *typed.ParseableType
	// openAPI is the schema that the server publishes, as JSON.
	openAPI json.RawMessage
	// rules returns the compiled CEL rules; nil if there are none. They are compiled at the first use, because that
	// takes milliseconds.
	rules func() *cel.Validator
}

// compile returns the compiled form of a schema. Errors: the schema is not structural.
func (c *Compiler) compile(props *apiextensionsv1.JSONSchemaProps) (*compiled, error) {
	text, err := json.Marshal(props)
	if err != nil {
		return nil, fmt.Errorf("compile a schema: %w", err)
	}
	hash := sha256.Sum256(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schemas[hash]; s != nil {
		return s, nil
	}
	s, err := newCompiled(props)
	if err != nil {
		return nil, fmt.Errorf("compile a schema: %w", err)
	}
	if c.schemas == nil {
		c.schemas = map[[sha256.Size]byte]*compiled{}
	}
	c.schemas[hash] = s
	return s, nil
}

func newCompiled(props *apiextensionsv1.JSONSchemaProps) (*compiled, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props.DeepCopy(), internal,
		nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	types, err := typesOf(structural)
	if err != nil {
		return nil, err
	}
	published, err := json.Marshal(publishedSchema(structural, openapi.ObjectMeta))
	if err != nil {
		return nil, err
	}
	structural = structural.DeepCopy() // its defaults are those of props, and PruneDefaults changes them
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	s := &compiled{structural: structural, types: types, openAPI: published}
	visitor := schema.Visitor{Structural: func(node *schema.Structural) bool {
		s.embedded = s.embedded || node.XEmbeddedResource
		s.keyed = s.keyed || node.XListType != nil && *node.XListType != "atomic"
		return false // it is not changed
	}}
	visitor.Visit(structural)
	s.rules = sync.OnceValue(func() *cel.Validator {
		return cel.NewValidator(structural, true, celconfig.PerCallLimit)
	})
	if s.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
		return nil, err
	}
	if status, exists := internal.Properties["status"]; exists {
		if s.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	return s, nil
}
