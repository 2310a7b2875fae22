// Package config has the manifests of the webapp operator, for programs that install it. The
// CustomResourceDefinition is in package v1.
package config

import (
	_ "embed"
	"slices"
)

//go:generate go tool controller-gen rbac:roleName=webapp-operator paths=../operator output:dir=.

// role.yaml is generated from the markers of package operator.
//
//go:embed role.yaml
var role []byte

//go:embed rbac.yaml
var rbac []byte

// RBAC returns the manifest of the service account that the operator needs, with the least permissions.
func RBAC() []byte { return slices.Concat(role, []byte("---\n"), rbac) }

// Webhooks has the permissions and the Service that the operator needs for its webhooks, besides RBAC.
//
//go:embed webhooks.yaml
var Webhooks []byte

// Sample is a WebApp to begin with.
//
//go:embed sample.yaml
var Sample []byte
