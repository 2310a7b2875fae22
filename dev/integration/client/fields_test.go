package client

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestFieldSelectorsOfInformersEqualAPIServer: an informer returns the same objects for a field selector as the API server,
// whether it can evaluate the selector or not.
func TestFieldSelectorsOfInformersEqualAPIServer(t *testing.T) {
	t.Parallel()
	config, setup, namespace := setUp(t)
	for i, node := range []string{"n1", "n2", "n1", ""} {
		p := pod(namespace, fmt.Sprint("p", i))
		p.Spec.NodeName = node
		must(client.Create(t.Context(), setup, p))(t)
	}
	cluster := clustertest.Connect(t, config)
	pods := clustertest.RunInformer(t, informer.Config[*corev1.Pod]{
		Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Namespaces: []string{namespace}}),
		Indexes: []informer.Index[*corev1.Pod]{
			{Name: "spec.nodeName", Values: func(p *corev1.Pod) []string {
				if p.Spec.NodeName == "" {
					return nil
				}
				return []string{p.Spec.NodeName}
			}},
			{Name: "spec.containers.image", Values: func(p *corev1.Pod) []string { return []string{p.Spec.Containers[0].Image} }},
		},
	})
	c := clustertest.Client(t, cluster, pods)
	ctx, calls := observe(t)
	in, list := []string{namespace}, []string{"list pods " + namespace + "/"}
	for selector, fromAPI := range map[string]bool{
		"metadata.name=p1":                     false,
		"metadata.name=none":                   false,
		"metadata.name!=p1":                    false,
		"spec.nodeName=n1":                     false,
		"spec.nodeName=none":                   false,
		"spec.nodeName=n1,metadata.name=p2":    false,
		"metadata.namespace=" + namespace:      false,
		"spec.nodeName=":                       true,
		"spec.nodeName!=n1":                    true,
		"status.phase=Pending":                 true,
		"spec.nodeName=n1,status.phase=Failed": true,
	} {
		found := must(client.Keys[*corev1.Pod](ctx, c, kube.Selection{Namespaces: in, FieldSelector: selector}))(t)
		requests := calls.Take()
		want := must(client.Keys[*corev1.Pod](ctx, c, kube.Selection{Namespaces: in, FieldSelector: selector}, client.FromAPI()))(t)
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s: objects (-API server +informer):\n%s", selector, diff)
		}
		if fromAPI != (len(requests) > 0) {
			t.Errorf("%s: the calls are %q, want some: %t", selector, requests, fromAPI)
		}
		calls.Take()
	}
	// The API server does not know this field.
	if found := must(client.Keys[*corev1.Pod](ctx, c, kube.Selection{Namespaces: in, FieldSelector: "spec.containers.image=web:1"}))(t); len(found) != 4 {
		t.Errorf("by image there are %v", found)
	}
	_, err := client.Keys[*corev1.Pod](ctx, c, kube.Selection{Namespaces: in, FieldSelector: "spec.unknown=a"})
	if requests := calls.Take(); !cmp.Equal(requests, list) || retry.Classify(err) != retry.Invalid {
		t.Errorf("an unknown field: %v, in the calls %q", err, requests)
	}
}
