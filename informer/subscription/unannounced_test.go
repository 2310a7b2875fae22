package subscription_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// An informer updates its cache shortly before it announces a change. A read in between must neither send the change
// twice nor hide a deletion.
func TestCachedButUnannouncedChange(t *testing.T) {
	t.Parallel()
	type server = *kindserver.Server[configMap]
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
		known         bool // the receiver has received a
		shown         func(server)
		before, after []string // events before and after the announcement
	}{
		"change":                        {true, change, []string{"Applied a=3 uid-1"}, nil},
		"change of unknown object":      {false, change, []string{"Applied a=3 uid-1"}, nil},
		"deletion":                      {true, remove, nil, []string{"Deleted a=2 uid-1"}},
		"deletion of unknown object":    {false, remove, nil, nil},
		"replacement":                   {true, replace, nil, []string{"Deleted a=2 uid-1", "Applied a=3 uid-2"}},
		"replacement of unknown object": {false, replace, []string{"Applied a=3 uid-2"}, nil},
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
				defer shared.Subscribe(func(informer.Change) { // the first subscriber
					if closed.Load() {
						<-gate
					}
				})()
				s := newSubscription(t, config[configMap]{Informer: shared})
				out := s.Events()
				testrun.Start(t, s.Run)
				received(out, words)
				server.Put(object("first", "1")) // fills the channel; a is queued after it
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

// An object that leaves the selection and returns before the receiver is ready has only changed.
func TestObjectLeavesSelectionAndReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps())
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
		s := newSubscription(t, config[configMap]{
			Retriever: informer.RetrieveSelected[configMap](cluster, kube.Selection{LabelSelector: "app=web"}),
		})
		out := s.Events()
		put("a", "1", "web")
		put("b", "1", "other")
		testrun.Start(t, s.Run)
		uidOf := func(name string) string {
			return uid(server.Object("configmaps", key(name)))
		}
		expect(t, out, "Applied a=1 "+uidOf("a"), "Synced")
		put("a", "2", "other")
		expect(t, out, "Deleted a=1 "+uidOf("a"))
		put("a", "3", "web")
		expect(t, out, "Applied a=3 "+uidOf("a"))
		put("first", "1", "web") // fills the channel
		put("a", "4", "other")
		put("a", "5", "web")
		expect(t, out, "Applied first=1 "+uidOf("first"), "Applied a=5 "+uidOf("a"))
	})
}
