// Package kube defines the types that all other packages share: an object, its key, kind and scope, and the cluster.
//
// It imports no other package of Even Keel except retry.
package kube
