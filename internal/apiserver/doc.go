// Package apiserver is a Kubernetes API server in memory, for tests. It behaves like kube-apiserver: clients see the
// same codes, reasons, messages, objects and watch events. The package simulation/conformance compares the two with
// random operations. The tests of the library and the module simulation use it. The benchmarks have a server of their
// own (dev/bench/internal/apiserver), which sends objects that were encoded in advance.
//
// A Server is an http.Handler, and Server.Transport is an http.RoundTripper that needs no listener and no goroutine.
// Both work in a bubble of testing/synctest: a request never waits, except for DeletionStep, and a watch waits on
// channels and timers that were made in the bubble. The clients of one server must be in one bubble. Server.Fork makes
// a server for each test from one that was set up once.
//
// Invariants:
//
//   - There is one resource version for all objects. Each committed write increments it; nothing else does. A write
//     that changes nothing is not committed: the object keeps its resource version, and watches get no event.
//   - A stored object never changes. A write stores a new object, so that lists, watches and forks share the stored
//     ones without copies.
//   - Every event of a resource is in its history, in the order of resource versions, until Compact or the limit of the
//     history removes it. A watch reads the history, so it cannot skip or reorder events.
//   - uids and generated names follow from the seed, the name of the object and how many were made for it before, also
//     for creates that were rejected or dry runs; times from time.Now. Random delays follow from the seed.
//   - The server has no goroutines. It has one mutex, which is never held while a request body is read or a response is
//     written.
//
// Kinds: Config.Kinds names them. ConfigMap, Secret, Namespace and Lease have the validation and defaults of the real
// server. Builtin serves any other kind of a Go type with the rules for metadata only, and Custom serves a custom
// resource without a schema (x-kubernetes-preserve-unknown-fields at the root).
//
// Different from kube-apiserver: a read of a version that does not exist yet fails at once, not after three seconds. A
// read with resourceVersion=0 returns the latest state, never an older one. An eviction ignores PodDisruptionBudgets.
//
// Server-side apply and managed fields are computed by apimachinery's field managers. Built-in kinds have the schema of
// client-go, if package applyschema has it. In all other kinds, only metadata has the schema of the real server; lists
// in the rest of the object are atomic, as in a custom resource without a schema.
//
// If the server has the kinds of RBAC, a request needs a role if it impersonates a user, or has the token of a service
// account that the server issued. All others are those of an administrator, also with other tokens. Checks against
// escalation are missing: a user who may write roles can write any.
//
// Missing, compared with kube-apiserver: other authentication, permissions for discovery and for impersonated uids and
// extra fields, Table output, CBOR, watches over WebSockets. Requests for the resources and subresources that refuse
// lists are refused with an error that names them. Other packages have the built-in kinds (builtin), and in the module
// simulation the schemas of custom resources and the controllers.
package apiserver
