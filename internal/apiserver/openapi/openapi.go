// Package openapi has the OpenAPI schemas of built-in kinds, as kube-apiserver serves them. The package generate writes
// them from the documents in the sources of Kubernetes.
package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // schemas.json.gz
	"encoding/json"
	"fmt"
	"regexp"
)

//go:generate go run ./generate

// ObjectMeta is the name of the schema of metadata.
const ObjectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// Prefix is in front of a schema's name in references.
const Prefix = "#/components/schemas/"

//go:embed schemas.json.gz
var compressed []byte

// Schemas returns the schemas of all built-in kinds that the package has, and of ObjectMeta, with those that they refer
// to, by name. It decompresses them each time, in about 10 ms.
func Schemas() (map[string]json.RawMessage, error) {
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("decompress the OpenAPI schemas: %w", err)
	}
	schemas := map[string]json.RawMessage{}
	if err := json.NewDecoder(reader).Decode(&schemas); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI schemas: %w", err)
	}
	return schemas, nil
}

// Reachable adds a schema to reached, with those that it refers to.
func Reachable(schemas, reached map[string]json.RawMessage, name string) {
	text, exists := schemas[name]
	if _, seen := reached[name]; seen || !exists {
		return
	}
	reached[name] = text
	for _, match := range regexp.MustCompile(`"`+Prefix+`([^"]+)"`).FindAllSubmatch(text, -1) {
		Reachable(schemas, reached, string(match[1]))
	}
}
