// Package webhook serves functions that the API server calls: admission before it stores an object, and conversion
// between the versions of a custom resource.
//
// A Validator rejects objects that no schema can reject, and a Mutator sets fields. Both are typed functions.
// Validating and Mutating make hooks of them, and a Server serves hooks with TLS. Server.Configurations returns the
// configurations that register the hooks, so that they cannot differ from what the program serves:
//
//	server, err := webhook.New(webhook.Config{
//		Cluster: cluster, Listen: ":9443", CertFile: "tls.crt", KeyFile: "tls.key",
//		Hooks: []webhook.Hook{webhook.Validating(options, validateHost)},
//	})
//
// A Server is a Runner of package manager, in the group Servers. It is also an http.Handler, so that a test passes it
// to simulation.Cluster.HandleWebhooks.
//
// Converting makes a hook of functions that convert between the versions of a CustomResourceDefinition.
//
// # Results
//
// An error of a Validator or Mutator rejects the request. Errors of package field reject it like the API server's own
// validation: status 422, with the fields as causes. An error with a Status method, such as those of
// k8s.io/apimachinery/pkg/api/errors, rejects it with that status. Any other error rejects it with status 403.
//
// A panic, an error after the time-out of the request, and an error that Failure has marked are not decisions: the
// server responds with status 500, and the failure policy of the hook decides.
//
// Only version v1 of AdmissionReview and ConversionReview is supported: each supported Kubernetes sends it since
// version 1.16, and v1beta1 was removed from the registration API in 1.22.
package webhook
