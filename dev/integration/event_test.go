package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/event"
)

// The API server accepts every Event of a recorder, whatever its entry contains.
func TestSmokeLiveEvents(t *testing.T) {
	e := newEnv(t)
	cluster := connect(t, local.RESTConfig())
	recorder := must(event.New(event.Config{
		Cluster: cluster, Controller: "shop.example.com/operator", FlushTimeout: time.Minute,
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		if err := recorder.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	pod := must(e.clients.CoreV1().Pods(e.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}, metav1.CreateOptions{}))(t)
	regarding := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	for range 3 {
		recorder.Event(regarding, "Warning", "Stalled", "Retry", "given up")
	}
	recorder.Event(regarding, "", "", "", "")
	long := strings.Repeat("ä\xff", 1000)
	recorder.Event(regarding, "Normal", long, long, long)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:Live:" + e.namespace}}
	recorder.Normal(role, "Seen", "Look", "it has no namespace, and a name that no Event may have")
	events := e.clients.EventsV1()
	eventually(t, func() string {
		list := must(events.Events(e.namespace).List(t.Context(), metav1.ListOptions{}))(t)
		if got := len(list.Items); got < 3 {
			return fmt.Sprintf("%d Events were created", got)
		}
		return ""
	})
	recorder.Event(regarding, "Warning", "Stalled", "Retry", "given up") // flushed at the end
	cancel()
	running.Wait()

	list := must(events.Events(e.namespace).List(t.Context(), metav1.ListOptions{}))(t)
	counts := map[string]int32{}
	for _, e := range list.Items {
		counts[e.Reason[:min(len(e.Reason), 7)]] = 1
		if e.Series != nil {
			counts[e.Reason] = e.Series.Count
		}
		if e.Regarding.UID != pod.UID {
			t.Errorf("an Event is about %v", e.Regarding)
		}
	}
	if len(list.Items) != 3 || counts["Stalled"] != 4 || counts["Unknown"] != 1 {
		t.Errorf("there are %d Events about the Pod: %v", len(list.Items), counts)
	}
	about := must(events.Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=" + role.Name}))(t)
	if len(about.Items) != 1 {
		t.Errorf("there are %d Events about the ClusterRole, want 1", len(about.Items))
	}
}
