package subscription_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/subscription"
)

// An informer shows a change a moment before it announces it. What is read in that moment must
// neither be told twice, nor hide the end of something.
func TestWhatIsShownButNotYetAnnounced(t *testing.T) {
	t.Parallel()
	type server = *fakeapi.Server[configMap]
	change := func(s server) { s.Put(object("a", "3")) }
	remove := func(s server) { s.Delete(key("a")) }
	replace := func(s server) { // found by a list, as one change
		s.Fail("watch", errDown())
		s.Fail("list", errDown())
		s.DropWatches()
		synctest.Wait()
		s.Delete(key("a"))
		s.Put(object("a", "3"))
		s.Compact()
		s.Fail("watch", nil)
		s.Fail("list", nil)
		time.Sleep(30 * time.Second)
	}
	for name, test := range map[string]struct {
		known         bool // the receiver has been told of a
		shown         func(server)
		before, after []string // what is told until the change is announced, and then
	}{
		"a change":                          {true, change, []string{"Applied a=3 uid-1"}, nil},
		"a change of what was not told":     {false, change, []string{"Applied a=3 uid-2"}, nil},
		"a deletion":                        {true, remove, nil, []string{"Deleted a=2 uid-1"}},
		"a deletion of what was not told":   {false, remove, nil, nil},
		"another object":                    {true, replace, nil, []string{"Deleted a=2 uid-1", "Applied a=3 uid-3"}},
		"another one, of what was not told": {false, replace, []string{"Applied a=3 uid-3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				if test.known {
					server.Put(object("a", "1"))
				}
				shared, err := informer.New(informer.Config[configMap]{Retriever: server, Logger: logger(t)})
				if err != nil {
					t.Fatal(err)
				}
				defer shared.Join(t.Context())()
				var closed atomic.Bool
				gate := make(chan struct{})
				defer shared.Subscribe(func(informer.Change) { // the first who is told
					if closed.Load() {
						<-gate
					}
				})()
				s := newSubscription(t, subscription.Config[configMap]{Informer: shared})
				out := s.Events()
				defer run(t, s)()
				received(out, words)
				server.Put(object("first", "1")) // waits to be received, and a behind it
				server.Put(object("a", "2"))
				synctest.Wait()
				closed.Store(true)
				test.shown(server)
				synctest.Wait()
				if got := (<-out).Key; got != key("first") {
					t.Errorf("the first event is about %s", got)
				}
				expect(t, out, test.before...)
				closed.Store(false)
				close(gate)
				expect(t, out, test.after...)
			})
		})
	}
}

// An object that leaves the selection and comes back, before the receiver hears of it, has
// changed, and no more.
func TestObjectThatLeavesTheSelectionAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeserver.New(fakeserver.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps"})
		cluster, err := kube.Connect(server.Config("tests"))
		if err != nil {
			t.Fatal(err)
		}
		put := func(name, value, labels string) {
			server.Edit("configmaps", key(name), "somebody", func(obj map[string]any) bool {
				(&unstructured.Unstructured{Object: obj}).SetLabels(map[string]string{"app": labels})
				obj["data"] = map[string]any{"value": value}
				return true
			})
			synctest.Wait()
		}
		s := newSubscription(t, subscription.Config[configMap]{
			Retriever: informer.RetrieveSelected[configMap](cluster, informer.Selection{LabelSelector: "app=web"}),
		})
		out := s.Events()
		put("a", "1", "web")
		put("b", "1", "other")
		defer run(t, s)()
		expect(t, out, "initial Applied a=1 uid-1", "Synced")
		put("a", "2", "other")
		expect(t, out, "Deleted a=1 uid-1")
		put("a", "3", "web")
		expect(t, out, "Applied a=3 uid-1")
		put("first", "1", "web") // which waits to be received
		put("a", "4", "other")
		put("a", "5", "web")
		expect(t, out, "Applied first=1 uid-3", "Applied a=5 uid-1")
	})
}
