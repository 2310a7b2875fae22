package subscription_test

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/predicate"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, s := newSubscribed(t, object("a", "1"))
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Applied a=1 uid-1", "Synced")
		server.Put(object("b", "1"))
		expect(t, out, "Applied b=1 uid-1")
		server.Put(object("b", "2"))
		expect(t, out, "Applied b=2 uid-1")
		server.Delete(key("b"))
		expect(t, out, "Deleted b=2 uid-1")
		server.Put(object("b", "3"))
		expect(t, out, "Applied b=3 uid-2")
	})
}

func TestSyncedWithoutObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSubscription(t, config[configMap]{Retriever: newServer()})
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Synced")
	})
}

func TestEventsOfSlowReceiversCoalesce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for _, name := range []string{"b", "c", "d"} {
			server.Put(object(name, "0"))
		}
		s := newSubscription(t, config[configMap]{Retriever: server})
		out := s.Events()
		testrun.Start(t, s.Run)
		if got := len(received(out, words)); got != 4 {
			t.Fatalf("%d events at the beginning, want 4", got)
		}
		server.Put(object("first", "1")) // fills the channel
		synctest.Wait()
		for i := range 1000 {
			server.Put(object("a", strconv.Itoa(i)))
			if i == 10 {
				server.Put(object("b", "1"))
			}
		}
		server.Delete(key("c"))
		server.Delete(key("d"))
		server.Put(object("d", "1")) // another object
		server.Put(object("short-lived", "1"))
		server.Delete(key("short-lived")) // before any event of it
		server.Put(object("d", "2"))
		expect(t, out,
			"Applied first=1 uid-1",
			"Applied a=999 uid-1", "Applied b=1 uid-1", "Deleted c=0 uid-1", "Deleted d=0 uid-1", "Applied d=2 uid-2",
		)
	})
}

func TestEventsAreCompleteAfterBrokenWatch(t *testing.T) {
	t.Parallel()
	for name, compact := range map[string]bool{"resumed": false, "expired": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, s := newSubscribed(t)
				out := s.Events()
				testrun.Start(t, s.Run)
				expect(t, out, "Synced")
				for _, name := range []string{"a", "b", "c", "d"} {
					server.Put(object(name, "1"))
					expect(t, out, "Applied "+name+"=1 uid-1")
				}
				server.Fail("watch", errDown())
				server.Fail("list", errDown())
				server.DropWatches()
				synctest.Wait()
				server.Delete(key("a"))
				server.Delete(key("b"))
				server.Put(object("b", "2"))
				server.Put(object("c", "2"))
				server.Put(object("e", "1"))
				if compact {
					server.Compact()
				}
				time.Sleep(time.Minute)
				expect(t, out)
				server.Fail("watch", nil)
				server.Fail("list", nil)
				time.Sleep(time.Minute)
				got := received(out, words)
				want := map[string]bool{
					"Deleted a=1 uid-1": true, "Deleted b=1 uid-1": true, "Applied b=2 uid-2": true, "Applied c=2 uid-1": true, "Applied e=1 uid-1": true,
				}
				seen := map[string]bool{}
				for _, event := range got {
					if seen[event] {
						t.Errorf("%s arrived twice", event)
					}
					seen[event] = true
					if event == "Applied b=2 uid-2" && !seen["Deleted b=1 uid-1"] {
						t.Error("the new b arrived before the Deleted of the old one")
					}
				}
				if diff := cmp.Diff(want, seen); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestReconnectSendsNoEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, s := newSubscribed(t, object("a", "1"))
		out, signals, objects := s.Events(), s.Signals(), s.Objects()
		testrun.Start(t, s.Run)
		expect(t, out, "Applied a=1 uid-1", "Synced")
		<-signals
		<-objects
		for range 3 {
			server.DropWatches()
			server.Compact()
			time.Sleep(time.Minute)
		}
		expect(t, out)
		if n := len(received(signals, func(struct{}) string { return "signal" })) + len(received(objects, nameOf)); n > 0 {
			t.Errorf("%d signals or objects without a change", n)
		}
	})
}

func nameOf(obj configMap) string { return obj.Name + "=" + obj.Data["value"] }

func TestPredicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		even := predicate.Func(func(_, after configMap) bool { return after != nil && len(after.Data["value"])%2 == 0 })
		s := newSubscription(t, config[configMap]{Retriever: server, Predicate: even})
		out, signals := s.Events(), s.Signals()
		testrun.Start(t, s.Run)
		expect(t, out, "Synced")
		synctest.Wait()
		<-signals
		server.Put(object("a", "x"))
		expect(t, out)
		server.Delete(key("a")) // before it was delivered
		expect(t, out)
		if n := len(received(signals, func(struct{}) string { return "" })); n > 0 {
			t.Errorf("%d signals for changes that the predicate drops", n)
		}
		server.Put(object("a", "xx"))
		expect(t, out, "Applied a=xx uid-2")
		<-signals
		server.Put(object("a", "xxx"))
		expect(t, out)
		server.Delete(key("a"))
		expect(t, out, "Deleted a=xxx uid-2")
		server.Put(object("b", "xx"))
		expect(t, out, "Applied b=xx uid-1")
		server.Put(object("c", "x"))
		server.DropWatches()
		server.Fail("list", errDown())
		server.Fail("watch", errDown())
		server.Delete(key("b"))
		server.Put(object("b", "x")) // a new object that the predicate drops
		server.Compact()
		server.Fail("list", nil)
		server.Fail("watch", nil)
		time.Sleep(time.Minute)
		expect(t, out, "Deleted b=xx uid-1")
	})
}

// An object that cannot be decoded is logged and not delivered. Its end is delivered if the object was delivered
// before.
func TestUndecodableObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		server, put, typed := dynamicConfigMaps(t, textLogger(&log))
		s := newSubscription(t, config[configMap]{Informer: typed})
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Synced")
		put("a", map[string]any{"value": "1"})
		expect(t, out, "Applied a=1 uid-1")
		put("a", "no map")
		put("b", "no map")
		put("c", map[string]any{"value": "1"})
		expect(t, out, "Applied c=1 uid-1")
		server.Delete(key("a"))
		server.Delete(key("b"))
		expect(t, out, "Deleted a= uid-1")
		for _, want := range []string{"failed to decode an object", "ns/b", "only its name is delivered"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%q is not in the log:\n%s", want, log.String())
			}
		}
	})
}

// dynamicConfigMaps returns a server of ConfigMaps with arbitrary data, and an informer that decodes them as the Go
// type.
func dynamicConfigMaps(t *testing.T, logger *slog.Logger) (server *kindserver.Server[*unstructured.Unstructured], put func(name string, data any), typed *informer.Informer[*corev1.ConfigMap]) {
	t.Helper()
	server = kindserver.New[*unstructured.Unstructured](apiserver.Custom(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps"), true)
	put = func(name string, data any) {
		obj := &unstructured.Unstructured{Object: map[string]any{"data": data}}
		obj.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		obj.SetNamespace("ns")
		obj.SetName(name)
		server.Put(obj)
	}
	dynamic, err := informer.New(informer.Config[*unstructured.Unstructured]{Retriever: described{server}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	typed, err = informer.As[*corev1.ConfigMap](dynamic)
	if err != nil {
		t.Fatal(err)
	}
	return server, put, typed
}

// described adds the kind to a server of unstructured objects.
type described struct {
	*kindserver.Server[*unstructured.Unstructured]
}

func (d described) Describe() informer.Description[*unstructured.Unstructured] {
	description := d.Server.Describe()
	description.GroupVersionKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	return description
}

// A receiver's copy must match the server after random changes.
func TestEventsKeepACopy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { keepCopy(t, seed) })
		})
	}
}
