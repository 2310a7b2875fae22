// Package webhooks calls the admission webhooks of a simulated cluster: those of MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations. The calls are made to an http.Handler, in the goroutine of the reviewed request and without
// sockets, with client-go's client and the messages of the real server.
//
// Different from kube-apiserver: a changed configuration has effect at once, validating webhooks are called one after the
// other, a handler that ignores the end of its context delays the request, certificates are ignored, and reviews have no
// options.
package webhooks
