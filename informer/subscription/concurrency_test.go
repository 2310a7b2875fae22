package subscription_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
)

// Run waits while an earlier session of a shared informer ends. Channels that are requested in this time must be served
// too.
func TestChannelsRequestedDuringStart(t *testing.T) {
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
				<-gate // delays the end of the session
			}
		})()
		server.Put(object("a", "1"))
		server.Put(object("gate", "1"))
		synctest.Wait()
		var leaving sync.WaitGroup
		leaving.Go(leave) // waited for below
		synctest.Wait()

		s := newSubscription(t, config[configMap]{Informer: shared})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { // waited for below
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // until Run waits for the end of the session
		out := s.Objects()
		close(gate)
		leaving.Wait()
		got := received(out, nameOf)
		if len(got) != 2 {
			t.Errorf("received %q, want a and gate", got)
		}
		cancel()
		running.Wait()
		if _, open := <-out; open {
			t.Error("the channel was not closed")
		}
	})
}

// A replaced object is deleted for the receiver, even if the predicate drops the new object.
func TestPredicateOfReplacement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		even := predicate.Func(func(_, after configMap) bool { return after != nil && len(after.Data["value"])%2 == 0 })
		s := newSubscription(t, config[configMap]{Retriever: server, Predicate: even})
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Synced")
		server.Put(object("b", "xx"))
		expect(t, out, "Applied b=xx uid-1")
		replaceUnseen(server, object("b", "x"))
		expect(t, out, "Deleted b=xx uid-1")
		server.Put(object("b", "xxxx")) // the predicate selects it now
		expect(t, out, "Applied b=xxxx uid-2")
		replaceUnseen(server, object("b", "yy"))
		expect(t, out, "Deleted b=xxxx uid-2", "Applied b=yy uid-3")

		server.Put(object("first", "xx")) // fills the channel
		synctest.Wait()
		server.Delete(key("b"))
		server.Put(object("b", "zz"))
		server.Delete(key("b"))
		server.Put(object("b", "z"))
		expect(t, out, "Applied first=xx uid-1", "Deleted b=yy uid-3")
	})
}

// replaceUnseen replaces an object by another one with the same name while no watch is open.
func replaceUnseen(server *kindserver.Server[configMap], obj configMap) {
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

// A slog.Handler is code of the program. This one makes a change and waits for its announcement, which would deadlock
// if the subscription held a lock while it logs.
func TestLogsWithoutLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		announced := make(chan struct{})
		var put func(name string, data any)
		_, putObject, typed := dynamicConfigMaps(t, slog.New(onWarning(func() {
			put("b", map[string]any{"value": "1"})
			<-announced
		})))
		put = putObject
		s := newSubscription(t, config[configMap]{Informer: typed})
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Synced")
		defer typed.Subscribe(func(c informer.Change) { // after the subscription's own subscriber
			if c.Key == key("b") {
				close(announced)
			}
		})()
		put("a", "no map")
		expect(t, out, "Applied b=1 uid-1")
	})
}

// onWarning is a slog.Handler that calls a function for each warning.
type onWarning func()

func (f onWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (f onWarning) Handle(context.Context, slog.Record) error        { f(); return nil }
func (f onWarning) WithAttrs([]slog.Attr) slog.Handler               { return f }
func (f onWarning) WithGroup(string) slog.Handler                    { return f }
