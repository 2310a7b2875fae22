// Package config has the manifests of the webapp operator, for programs that install it.
package config

import (
	"bytes"
	_ "embed"
	"regexp"
)

//go:generate sh -c "go run .. manifests --image=registry.example.com/webapp:1.0 --namespace=webapp-operator -- --webhook-listen=:9443 >.new && mv .new manifests.yaml"

// Manifests are all objects, as the program prints them.
//
//go:embed manifests.yaml
var Manifests []byte

// RBAC returns the service account of Manifests with its namespace and its permissions.
func RBAC() []byte {
	kinds := regexp.MustCompile(`(?m)^kind: (Namespace|ServiceAccount|(Cluster)?Role(Binding)?)$`)
	var documents [][]byte
	for document := range bytes.SplitSeq(Manifests, []byte("\n---\n")) {
		if kinds.Match(document) {
			documents = append(documents, document)
		}
	}
	return bytes.Join(documents, []byte("\n---\n"))
}

// Sample is a WebApp to begin with.
//
//go:embed sample.yaml
var Sample []byte
