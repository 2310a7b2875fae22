package client

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// settings is an object store with one object.
type settings struct {
	mu      sync.Mutex
	key     kube.Key
	content string // guarded by mu; empty: the object does not exist
}

func (s *settings) set(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = content
}

// List implements poll.ObjectStore.
func (s *settings) List(context.Context) ([]poll.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.content == "" {
		return nil, nil
	}
	return []poll.Item{{ID: s.key.Name, Version: s.content, Keys: []kube.Key{s.key}}}, nil
}

// Read implements poll.ObjectStore.
func (s *settings) Read(context.Context, poll.Item) (poll.Item, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return poll.Item{Content: []byte("content " + s.content)}, s.content != "", nil
}

// TestHandlerReadsObjectStore: a ConfigMap follows the content of an object outside the cluster.
func TestHandlerReadsObjectStore(t *testing.T) {
	t.Parallel()
	config, c, namespace := setUp(t)
	cluster := clustertest.Connect(t, config)
	key := kube.Key{Namespace: namespace, Name: "web"}
	must(client.Create(t.Context(), c, configMap(namespace, "web", nil)))(t)
	store := &settings{key: key, content: "v1"}
	objects := poll.New(poll.Config{
		Name: "settings", Poller: poll.FromObjectStore(store), KeepItems: true, Interval: 20 * time.Millisecond,
	})
	clustertest.Run(t, controller.Config[*corev1.ConfigMap]{
		Name:      "settings",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{namespace}}),
		Handler: func(ctx context.Context, obj *corev1.ConfigMap) error {
			object, found, err := objects.Item(obj.Name)
			if err != nil || obj.Name != "web" {
				return err
			}
			changed := obj.DeepCopy()
			changed.Data = nil
			if found {
				changed.Data = map[string]string{"content": string(object.Content)}
			}
			_, err = client.Patch(ctx, c, obj, client.MergeFrom(obj, changed))
			return err
		},
		Sources: []controller.Source{objects},
	})
	for _, content := range []string{"v1", "v2", ""} {
		store.set(content)
		want := ""
		if content != "" {
			want = "content " + content
		}
		clustertest.Eventually(t, func() string {
			live, err := client.Get[*corev1.ConfigMap](t.Context(), c, key)
			switch {
			case err != nil:
				return err.Error()
			case live.Data["content"] != want:
				return "the content is " + live.Data["content"]
			}
			return ""
		})
	}
}
