package crds

import structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

// definitionSchema returns the part of the schema of CustomResourceDefinition that decides how server-side apply
// merges: versions and lists of names are atomic, conditions are merged by type. An unknown field in an applied
// openAPIV3Schema is ignored, where the real server returns an error.
func definitionSchema() *structuralschema.Structural {
	text, integer := scalarSchema("string"), scalarSchema("integer")
	names := objectSchema(properties{
		"plural": text, "singular": text, "kind": text, "listKind": text,
		"shortNames": listSchema(text, "atomic"), "categories": listSchema(text, "atomic"),
	})
	condition := objectSchema(properties{
		"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text,
		"observedGeneration": integer,
	})
	root := objectSchema(properties{
		"spec": objectSchema(properties{
			"group": text, "scope": text, "names": names, "versions": listSchema(versionSchema(), "atomic"),
			"preserveUnknownFields": scalarSchema("boolean"), "conversion": conversionSchema(),
		}),
		"status": objectSchema(properties{
			"acceptedNames": names, "storedVersions": listSchema(text, "atomic"),
			"conditions": listSchema(condition, "map", "type"), "observedGeneration": integer,
		}),
	})
	return &root
}

// versionSchema is the schema of an element of spec.versions.
func versionSchema() structuralschema.Structural {
	text, boolean := scalarSchema("string"), scalarSchema("boolean")
	untyped := structuralschema.Structural{
		Generic:    structuralschema.Generic{Type: "object"},
		Extensions: structuralschema.Extensions{XPreserveUnknownFields: true},
	}
	return objectSchema(properties{
		"name": text, "served": boolean, "storage": boolean, "deprecated": boolean, "deprecationWarning": text,
		"schema": objectSchema(properties{"openAPIV3Schema": untyped}),
		"subresources": objectSchema(properties{
			"status": untyped,
			"scale": objectSchema(properties{
				"specReplicasPath": text, "statusReplicasPath": text,
				"labelSelectorPath": text,
			}),
		}),
		"additionalPrinterColumns": listSchema(objectSchema(properties{
			"name": text, "type": text, "format": text, "description": text, "priority": scalarSchema("integer"),
			"jsonPath": text,
		}), "atomic"),
		"selectableFields": listSchema(objectSchema(properties{"jsonPath": text}), "atomic"),
	})
}

func conversionSchema() structuralschema.Structural {
	text := scalarSchema("string")
	service := objectSchema(properties{"namespace": text, "name": text, "path": text, "port": scalarSchema("integer")})
	return objectSchema(properties{
		"strategy": text,
		"webhook": objectSchema(properties{
			"clientConfig":             objectSchema(properties{"url": text, "caBundle": text, "service": service}),
			"conversionReviewVersions": listSchema(text, "atomic"),
		}),
	})
}

type properties map[string]structuralschema.Structural

func objectSchema(fields properties) structuralschema.Structural {
	return structuralschema.Structural{Generic: structuralschema.Generic{Type: "object"}, Properties: fields}
}

func scalarSchema(kind string) structuralschema.Structural {
	return structuralschema.Structural{Generic: structuralschema.Generic{Type: kind}}
}

func listSchema(items structuralschema.Structural, listType string, keys ...string) structuralschema.Structural {
	return structuralschema.Structural{
		Generic: structuralschema.Generic{Type: "array"}, Items: &items,
		Extensions: structuralschema.Extensions{XListType: &listType, XListMapKeys: keys},
	}
}
