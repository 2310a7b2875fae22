package crds

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkExtensions checks the types of maps and lists.
func checkExtensions(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if preserve := s.XPreserveUnknownFields; preserve != nil && !*preserve {
		errs = append(errs, field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), *preserve,
			"must be true or undefined"))
	}
	needsType := func(want, extension string) bool {
		problem := "must be " + want + " if " + extension + " is specified"
		switch s.Type {
		case want:
			return false
		case "":
			errs = append(errs, field.Required(path.Child("type"), problem))
		default:
			errs = append(errs, field.Invalid(path.Child("type"), s.Type, problem))
		}
		return true
	}
	oneOf := func(value, extension string, choices ...string) {
		if !slices.Contains(choices, value) {
			errs = append(errs, field.NotSupported(path.Child(extension), value, choices))
		}
	}
	if s.XMapType != nil {
		needsType("object", "x-kubernetes-map-type")
		oneOf(*s.XMapType, "x-kubernetes-map-type", "atomic", "granular")
	}
	if s.XListType == nil {
		return errs
	}
	if !needsType("array", "x-kubernetes-list-type") && *s.XListType == "set" && s.Items != nil &&
		s.Items.Schema != nil {
		const problem = "must be atomic as item of a list with x-kubernetes-list-type=set"
		switch items := s.Items.Schema; {
		case items.Type == "array" && items.XListType != nil && *items.XListType != "atomic":
			errs = append(errs, field.Invalid(path.Child("items", "x-kubernetes-list-type"), items.XListType, problem))
		case items.Type == "object" && (items.XMapType == nil || *items.XMapType != "atomic"):
			errs = append(errs, field.Invalid(path.Child("items", "x-kubernetes-map-type"), items.XListType, problem))
		}
	}
	oneOf(*s.XListType, "x-kubernetes-list-type", "atomic", "set", "map")
	return errs
}

// checkListKeys checks the keys of a list that is a map, and the items of one that is a map or a set.
func checkListKeys(s *apiextensions.JSONSchemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	listType := ""
	if s.XListType != nil {
		listType = *s.XListType
	}
	keys := path.Child("x-kubernetes-list-map-keys")
	if len(s.XListMapKeys) > 0 && listType != "map" {
		const problem = "must be map if x-kubernetes-list-map-keys is non-empty"
		if s.XListType == nil {
			errs = append(errs, field.Required(path.Child("x-kubernetes-list-type"), problem))
		} else {
			errs = append(errs, field.Invalid(path.Child("x-kubernetes-list-type"), listType, problem))
		}
	}
	itemPath := path.Child("items")
	if listType == "map" {
		errs = append(errs, checkListMap(s, keys, itemPath)...)
	}
	if s.Items == nil || s.Items.Schema == nil || listType != "map" && listType != "set" {
		return errs
	}
	items := s.Items.Schema
	if items.Nullable {
		errs = append(errs,
			field.Forbidden(itemPath.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+listType))
	}
	if listType == "map" {
		errs = append(errs, checkKeyProperties(s, itemPath)...)
	}
	return errs
}

// checkListMap checks the keys of a list that is a map, and the type of its items.
func checkListMap(s *apiextensions.JSONSchemaProps, keys, itemPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.XListMapKeys) == 0 {
		errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
	}
	if s.Items == nil {
		return append(errs, field.Required(itemPath, "must have a schema if x-kubernetes-list-type is map"))
	}
	items := s.Items.Schema
	if items == nil {
		return append(errs,
			field.Invalid(itemPath, s.Items, "must only have a single schema if x-kubernetes-list-type is map"))
	}
	if items.Type != "object" {
		return append(errs, field.Invalid(itemPath.Child("type"), items.Type, "must be object if parent array's "+
			"x-kubernetes-list-type is map"))
	}
	for i, key := range s.XListMapKeys {
		property, exists := items.Properties[key]
		switch {
		case !exists:
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "entries must all be names of item properties"))
		case property.Type == "array" || property.Type == "object":
			errs = append(errs, field.Invalid(itemPath.Child("properties").Key(key).Child("type"), items.Type,
				"must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if slices.Contains(s.XListMapKeys[:i], key) {
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "must not contain duplicate entries"))
		}
	}
	return errs
}

// checkKeyProperties checks that each item of a list that is a map has a value for each key.
func checkKeyProperties(s *apiextensions.JSONSchemaProps, itemPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	items := s.Items.Schema
	for _, key := range s.XListMapKeys {
		property, exists := items.Properties[key]
		propertyPath := itemPath.Child("properties").Key(key)
		if exists && !slices.Contains(items.Required, key) && property.Default == nil {
			errs = append(errs, field.Required(propertyPath.Child("default"),
				"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(propertyPath.Child("nullable"),
				"this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}
