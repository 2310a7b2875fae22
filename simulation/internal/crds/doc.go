// Package crds makes the kinds of custom resources from a CustomResourceDefinition. The kinds behave as the custom
// resources of the real server: unknown fields are pruned, defaults are set in requests and in stored objects, and
// objects are validated by their OpenAPI schema, their list types and their CEL rules. On updates, the errors of
// unchanged values are tolerated (ratcheting). Server-side apply merges by the schema.
//
// The algorithms are those of k8s.io/apiextensions-apiserver. Its packages for storage and serving, which need etcd and
// gRPC, are not used: this package has their order of steps.
package crds
