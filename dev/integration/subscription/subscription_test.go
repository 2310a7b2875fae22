// Package subscription tests subscriptions against a real API server.
package subscription

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/informer/subscription"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

// env is a test's part of the cluster: its own namespace, and a client.
type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	return env{clustertest.NewEnv(t, local.RESTConfig())}
}

// put creates or changes a ConfigMap.
func (e env) put(name, value string, labels map[string]string) *corev1.ConfigMap {
	e.Helper()
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: labels}, Data: map[string]string{"value": value},
	}
	var err error
	var exists bool
	if exists, err = client.Exists[*corev1.ConfigMap](e.Context(), e.Client, kube.KeyOf(obj)); err == nil {
		if exists {
			obj, err = client.Update(e.Context(), e.Client, obj)
		} else {
			obj, err = client.Create(e.Context(), e.Client, obj)
		}
	}
	if err != nil {
		e.Fatal(err)
	}
	return obj
}

func (e env) delete(obj *corev1.ConfigMap) {
	e.Helper()
	if err := client.Delete(e.Context(), e.Client, obj); err != nil {
		e.Fatal(err)
	}
}

func web() map[string]string { return map[string]string{"app": "web"} }

// subscribe runs a subscription to the ConfigMaps of the namespace with the label app=web.
func (e env) subscribe() (s *subscription.Subscription[*corev1.ConfigMap], stop func()) {
	e.Helper()
	objects, err := informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](e.Cluster, kube.Selection{
			Namespaces: []string{e.Namespace}, LabelSelector: "app=web",
		}),
	})
	if err != nil {
		e.Fatal(err)
	}
	s, err = subscription.New(subscription.Config[*corev1.ConfigMap]{Informer: objects})
	if err != nil {
		e.Fatal(err)
	}
	return s, testrun.Start(e, s.Run)
}

// next returns the next event.
func (e env) next(out <-chan subscription.Event[*corev1.ConfigMap]) subscription.Event[*corev1.ConfigMap] {
	e.Helper()
	select {
	case event, open := <-out:
		if !open {
			e.Fatal("the channel is closed")
		}
		return event
	case <-time.After(time.Minute):
		e.Fatal("no event within a minute")
		panic("not reached")
	}
}

// expect fails the test unless the next event has this object and state.
func (e env) expect(out <-chan subscription.Event[*corev1.ConfigMap], deleted bool, name, value string, uid types.UID) {
	e.Helper()
	event := e.next(out)
	if event.Deleted != deleted || event.Key.Name != name || event.Object.Data["value"] != value || event.Object.UID != uid {
		e.Fatalf("the event is %+v, want %s=%s (deleted: %t, uid %s)", event, name, value, deleted, uid)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	a := e.put("a", "1", web())
	other := e.put("other", "1", nil)
	s, stop := e.subscribe()
	defer stop()
	out := s.Events()
	e.expect(out, false, "a", "1", a.UID)
	if event := e.next(out); !event.Synced {
		t.Fatalf("the event is %+v, want Synced", event)
	}
	e.put("a", "2", web())
	e.expect(out, false, "a", "2", a.UID)
	e.put("other", "2", web()) // comes into the selection
	e.expect(out, false, "other", "2", other.UID)
	e.put("other", "3", nil)
	e.expect(out, true, "other", "2", other.UID)
	e.delete(a)
	e.expect(out, true, "a", "2", a.UID)
	second := e.put("a", "3", web())
	e.expect(out, false, "a", "3", second.UID)
}

func TestObjectsAndSignals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s, stop := e.subscribe()
	defer stop()
	objects, signals := s.Objects(), s.Signals()
	<-signals
	for i := range 50 {
		e.put("a", strconv.Itoa(i), web())
	}
	for (<-objects).Data["value"] != "49" {
	}
	<-signals
}

// Not parallel: it stops the API server.
func TestDeletionsDuringServerOutageAreReported(t *testing.T) {
	if local.Existing() {
		t.Skip("the cluster is not ours to restart")
	}
	e := newEnv(t)
	a, b := e.put("a", "1", web()), e.put("b", "1", web())
	s, stop := e.subscribe()
	defer stop()
	out := s.Events()
	e.next(out)
	e.next(out)
	if event := e.next(out); !event.Synced {
		t.Fatalf("the event is %+v, want Synced", event)
	}
	head := e.put("head", "1", web()) // waits to be received, so that what follows does
	if err := local.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.delete(a)
	e.delete(b)
	second := e.put("b", "2", web())
	e.expect(out, false, "head", "1", head.UID)
	got := map[string]types.UID{}
	for len(got) < 3 {
		event := e.next(out)
		what := "Applied "
		if event.Deleted {
			what = "Deleted "
		}
		got[what+event.Key.Name] = event.Object.UID
		if event.Key.Name == "b" && !event.Deleted && got["Deleted b"] != b.UID {
			t.Error("the new b came before the end of the old one")
		}
	}
	if got["Deleted a"] != a.UID || got["Deleted b"] != b.UID || got["Applied b"] != second.UID {
		t.Errorf("the events were %v", got)
	}
}
