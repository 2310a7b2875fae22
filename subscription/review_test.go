package subscription_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/subscription"
)

// Run takes its time to begin while a shared informer's earlier session ends. Who asks for a
// channel then has it served like any other.
func TestChannelsMayBeAskedForWhileRunBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		shared, err := informer.New(informer.Config[configMap]{Retriever: server, Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		leave := shared.Join(t.Context())
		synctest.Wait()
		gate := make(chan struct{})
		defer shared.Subscribe(func(c informer.Change) {
			if c.Key == key("gate") {
				<-gate // holds up the end of the session
			}
		})()
		server.Put(object("a", "1"))
		server.Put(object("gate", "1"))
		synctest.Wait()
		var leaving sync.WaitGroup
		leaving.Go(leave) // waited for below
		synctest.Wait()

		s := newSubscription(t, subscription.Config[configMap]{Informer: shared})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { // waited for below
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // Run waits for the end of the session
		out := s.Objects()
		close(gate)
		leaving.Wait()
		got := received(out, nameOf)
		if len(got) != 2 {
			t.Errorf("it was told of %q, want a and gate", got)
		}
		cancel()
		running.Wait()
		if _, open := <-out; open {
			t.Error("the channel has no end")
		}
	})
}

// What the Predicate refuses is not told because it took the place of what the receiver knows.
func TestPredicateIsAskedAboutWhatTakesAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		even := predicate.Func(func(_, after configMap) bool { return after != nil && len(after.Data["value"])%2 == 0 })
		s := newSubscription(t, subscription.Config[configMap]{Retriever: server, Predicate: even})
		out := s.Events()
		defer run(t, s)()
		expect(t, out, "Synced")
		server.Put(object("b", "xx"))
		expect(t, out, "Applied b=xx uid-1")
		replaceUnseen(server, object("b", "x"))
		expect(t, out, "Deleted b=xx uid-1")
		server.Put(object("b", "xxxx")) // now it matters
		expect(t, out, "Applied b=xxxx uid-2")
		replaceUnseen(server, object("b", "yy"))
		expect(t, out, "Deleted b=xxxx uid-2", "Applied b=yy uid-3")

		server.Put(object("first", "xx")) // which waits to be received
		synctest.Wait()
		server.Delete(key("b"))
		server.Put(object("b", "zz"))
		server.Delete(key("b"))
		server.Put(object("b", "z"))
		expect(t, out, "Applied first=xx uid-4", "Deleted b=yy uid-3")
	})
}

// replaceUnseen puts another object in the place of one of its name, while nobody watches.
func replaceUnseen(server *fakeapi.Server[configMap], obj configMap) {
	server.Fail("watch", errDown())
	server.Fail("list", errDown())
	server.DropWatches()
	synctest.Wait()
	server.Delete(kube.KeyOf(obj))
	server.Put(obj)
	server.Compact()
	server.Fail("watch", nil)
	server.Fail("list", nil)
	time.Sleep(30 * time.Second)
}

// A slog.Handler is somebody else's code: this one makes a change and waits until it is announced,
// which it never would be if the subscription kept something locked meanwhile.
func TestNothingIsLockedWhileItLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, put, typed := dynamicConfigMaps(t)
		announced := make(chan struct{})
		logging := onLog(func() {
			put("b", map[string]any{"value": "1"})
			<-announced
		})
		s := newSubscription(t, subscription.Config[configMap]{Informer: typed, Logger: slog.New(logging)})
		out := s.Events()
		defer run(t, s)()
		expect(t, out, "Synced")
		defer typed.Subscribe(func(c informer.Change) { // after the subscription has been told
			if c.Key == key("b") {
				close(announced)
			}
		})()
		put("a", "no map")
		expect(t, out, "Applied b=1 uid-2")
	})
}

// onLog is a slog.Handler that calls a function for each line.
type onLog func()

func (f onLog) Enabled(context.Context, slog.Level) bool  { return true }
func (f onLog) Handle(context.Context, slog.Record) error { f(); return nil }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f onLog) WithGroup(string) slog.Handler             { return f }
