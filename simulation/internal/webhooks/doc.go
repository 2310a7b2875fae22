// Package webhooks calls the webhooks of a simulated cluster: those of MutatingWebhookConfigurations,
// ValidatingWebhookConfigurations, and CustomResourceDefinitions with the conversion strategy Webhook. The calls are
// made to an http.Handler, in the goroutine of the request and without sockets, with client-go's client and the
// messages of the real server.
//
// Different from kube-apiserver: a changed configuration has effect at once, validating webhooks are called one after
// the other, a handler that ignores the end of its context delays the request, certificates are ignored, reviews have
// no options, and versions of reviews other than v1 are not sent. An object is converted when a request or a watch
// needs it in another version, not when it is written.
package webhooks
