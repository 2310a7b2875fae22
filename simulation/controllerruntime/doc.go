// Package controllerruntime contains no code but tests: controller-runtime and client-go run against the API server in
// memory, in virtual time and on a listener. It is a module of its own, so that no other module depends on
// controller-runtime.
package controllerruntime
