// Package kube holds the words that every other package shares: an object, its
// key, its kind and scope, and the cluster that they live in.
//
// It is the leaf of the module: it imports nothing of Even Keel.
package kube
