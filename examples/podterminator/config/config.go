// Package config has the manifests of pod-terminator, for programs that install it.
package config

import _ "embed"

// CRD is the CustomResourceDefinition of PodTerminator.
//
//go:embed crd.yaml
var CRD []byte

// RBAC is the service account that the operator needs, with the least permissions.
//
//go:embed rbac.yaml
var RBAC []byte

// Sample is a PodTerminator to begin with.
//
//go:embed sample.yaml
var Sample []byte
