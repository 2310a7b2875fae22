package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The old form of the path of a watch has only one method, and no subresources.
func TestWatchPath(t *testing.T) {
	t.Parallel()
	nodes := Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes", corev1.AddToScheme)
	nodes.ClusterScoped, nodes.Status = true, true
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, nodes) })
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/api/v1/watch/nodes/n?resourceVersion=x", 500},
		{"GET", "/api/v1/watch/nodes?resourceVersion=x", 500},
		{"GET", "/api/v1/watch/nodes/n/status", 404},
		{"PUT", "/api/v1/watch/nodes/n/status", 404},
		{"GET", "/api/v1/watch/namespaces/n/finalize", 404},
		{"POST", "/api/v1/watch/nodes", 405},
		{"DELETE", "/api/v1/watch/nodes", 405},
		{"PUT", "/api/v1/watch/nodes/n", 405},
		{"DELETE", "/api/v1/watch/namespaces/shop/configmaps/a", 405},
		{"POST", "/api/v1/watch/namespaces/shop/configmaps", 405},
		{"GET", "/apis/example.com/v1/watch/namespaces/shop/widgets/a/status", 405},
	} {
		if code, text := send(t, s, c.method, c.path, `{"metadata":{"name":"n"}}`, "Content-Type", "application/json"); code != c.code {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, text, c.code)
		}
	}
}
