// Package config has the manifests of the webapp operator, for programs that install it. The
// CustomResourceDefinition is in package v1.
package config

import _ "embed"

// RBAC is the service account that the operator needs, with the least permissions.
//
//go:embed rbac.yaml
var RBAC []byte

// Sample is a WebApp to begin with.
//
//go:embed sample.yaml
var Sample []byte
