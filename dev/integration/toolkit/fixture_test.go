package toolkit

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
)

// startSet starts a program with a set of these kinds, and returns the set and the program's requests. It has a connection
// of its own, as another process: the sets of one connection share informers.
func startSet(
	t *testing.T, config *rest.Config, name string, kindsOf func(*kube.Cluster) []watched.Kind,
) (*owned.Set, *requestlog.Recording) {
	t.Helper()
	cluster := clustertest.Connect(t, config)
	recording := &requestlog.Recording{}
	children, err := watched.New(watched.Config{
		Client: client.Config{
			Cluster: cluster, FieldOwner: "restarts",
			Interceptors: []client.Interceptor{recording.Intercept},
		},
		Set:   owned.Config{Name: name},
		Kinds: kindsOf(cluster),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range children.Client.Config().Informers {
		objects := each.(interface {
			Join(context.Context) func()
			WaitSynced(context.Context) error
		})
		t.Cleanup(objects.Join(t.Context()))
		if err := objects.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return children.Set, recording
}

// objectsOf returns a watched.Kind of the unstructured children of a set.
func objectsOf(cluster *kube.Cluster, kind schema.GroupVersionKind, set string) watched.Kind {
	return watched.Of(func(c *informer.Config[*unstructured.Unstructured]) {
		c.Retriever = informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{
			Kind: kind, LabelSelector: owned.LabelSet + "=" + set,
		})
	})
}
