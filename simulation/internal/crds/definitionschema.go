package crds

import structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

// definitionSchema returns the part of the schema of CustomResourceDefinition that decides how server-side apply merges:
// versions and lists of names are atomic, conditions are merged by type. An unknown field in an applied openAPIV3Schema is
// ignored, where the real server returns an error.
func definitionSchema() *structuralschema.Structural {
	object := func(properties map[string]structuralschema.Structural) structuralschema.Structural {
		return structuralschema.Structural{Generic: structuralschema.Generic{Type: "object"}, Properties: properties}
	}
	scalar := func(kind string) structuralschema.Structural {
		return structuralschema.Structural{Generic: structuralschema.Generic{Type: kind}}
	}
	text, integer := scalar("string"), scalar("integer")
	list := func(items structuralschema.Structural, listType string, keys ...string) structuralschema.Structural {
		return structuralschema.Structural{
			Generic: structuralschema.Generic{Type: "array"}, Items: &items,
			Extensions: structuralschema.Extensions{XListType: &listType, XListMapKeys: keys},
		}
	}
	names := object(map[string]structuralschema.Structural{
		"plural": text, "singular": text, "kind": text, "listKind": text, "shortNames": list(text, "atomic"), "categories": list(text, "atomic"),
	})
	anything := structuralschema.Structural{
		Generic: structuralschema.Generic{Type: "object"}, Extensions: structuralschema.Extensions{XPreserveUnknownFields: true},
	}
	version := object(map[string]structuralschema.Structural{
		"name": text, "served": scalar("boolean"), "storage": scalar("boolean"), "deprecated": scalar("boolean"), "deprecationWarning": text,
		"schema": object(map[string]structuralschema.Structural{"openAPIV3Schema": anything}),
		"subresources": object(map[string]structuralschema.Structural{
			"status": anything,
			"scale":  object(map[string]structuralschema.Structural{"specReplicasPath": text, "statusReplicasPath": text, "labelSelectorPath": text}),
		}),
		"additionalPrinterColumns": list(object(map[string]structuralschema.Structural{
			"name": text, "type": text, "format": text, "description": text, "priority": integer, "jsonPath": text,
		}), "atomic"),
		"selectableFields": list(object(map[string]structuralschema.Structural{"jsonPath": text}), "atomic"),
	})
	service := object(map[string]structuralschema.Structural{"namespace": text, "name": text, "path": text, "port": integer})
	webhook := object(map[string]structuralschema.Structural{
		"clientConfig":             object(map[string]structuralschema.Structural{"url": text, "caBundle": text, "service": service}),
		"conversionReviewVersions": list(text, "atomic"),
	})
	condition := object(map[string]structuralschema.Structural{
		"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text, "observedGeneration": integer,
	})
	root := object(map[string]structuralschema.Structural{
		"spec": object(map[string]structuralschema.Structural{
			"group": text, "scope": text, "names": names, "versions": list(version, "atomic"), "preserveUnknownFields": scalar("boolean"),
			"conversion": object(map[string]structuralschema.Structural{"strategy": text, "webhook": webhook}),
		}),
		"status": object(map[string]structuralschema.Structural{
			"acceptedNames": names, "storedVersions": list(text, "atomic"), "conditions": list(condition, "map", "type"), "observedGeneration": integer,
		}),
	})
	return &root
}
