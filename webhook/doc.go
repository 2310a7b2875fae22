// Package webhook serves functions that the API server calls: admission before it stores an object, and conversion
// between the versions of a custom resource.
//
// Validating makes a hook of functions that reject objects that no schema can reject, and Mutating of functions that
// set fields. A Server serves hooks with TLS. Server.Configurations returns the configurations that register them, so
// that they cannot differ from what the program serves:
//
//	server, err := webhook.New(webhook.Config{
//		Cluster: cluster, Listen: ":9443", CertFile: "tls.crt", KeyFile: "tls.key",
//		Hooks: []webhook.Hook{webhook.Validating(config, validateHost)},
//	})
//
// A Server is a Runner of package manager, in the group Servers. It is also an http.Handler, so that a test passes it
// to simulation.Cluster.HandleWebhooks.
//
// Converting makes a hook of functions that convert between the versions of a CustomResourceDefinition.
//
// Only version v1 of AdmissionReview and ConversionReview is supported: each supported Kubernetes sends it since
// version 1.16, and v1beta1 was removed from the registration API in 1.22.
package webhook
