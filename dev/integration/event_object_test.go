package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/event"
)

// The API server accepts Events about objects, and kubectl's field selectors find them.
func TestLiveEventsAboutObjects(t *testing.T) {
	e := newEnv(t)
	recorder := must(event.New(event.Config{
		Cluster: connect(t, local.RESTConfig()), Controller: "shop.example.com/operator", FlushTimeout: time.Minute,
	}))(t)
	config := must(e.clients.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}))(t)
	namespace := must(e.clients.CoreV1().Namespaces().Get(t.Context(), e.namespace, metav1.GetOptions{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		if err := recorder.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	recorder.Normal(config, "Read", "Read", "%d entries", 3)
	recorder.Warning(namespace, "Odd", "Look", "n")
	cancel() // what was said is sent
	running.Wait()
	found := must(e.clients.CoreV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(config.UID)}))(t)
	if len(found.Items) != 1 || found.Items[0].Message != "3 entries" || found.Items[0].InvolvedObject.Kind != "ConfigMap" {
		t.Errorf("about the ConfigMap there are %+v", found.Items)
	}
	odd := must(e.clients.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Odd"}))(t)
	if len(odd.Items) != 1 || odd.Items[0].Type != "Warning" || odd.Items[0].Regarding.UID != namespace.UID {
		t.Errorf("about the Namespace there are %+v", odd.Items)
	}
}
