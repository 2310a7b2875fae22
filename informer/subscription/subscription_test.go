package subscription_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/informer/subscription"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/predicate"
)

func TestObjectsHaveNewestState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, s := newSubscribed(t, object("a", "1"))
		out := s.Objects()
		testrun.Start(t, s.Run)
		expectObjects(t, out, "a=1")
		server.Put(object("first", "1")) // fills the channel
		synctest.Wait()
		for i := range 100 {
			server.Put(object("b", strconv.Itoa(i)))
			server.Put(object("a", strconv.Itoa(i)))
		}
		server.Put(object("c", "1"))
		server.Delete(key("c"))
		expectObjects(t, out, "first=1", "b=99", "a=99")
		server.Delete(key("a"))
		expectObjects(t, out)
		server.Put(object("a", "again"))
		expectObjects(t, out, "a=again")
	})
}

func expectObjects(t *testing.T, out <-chan configMap, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, received(out, nameOf)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestReceiverOwnsObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s := newSubscribed(t, object("a", "1"))
		objects, events := s.Objects(), s.Events()
		testrun.Start(t, s.Run)
		(<-objects).Data["value"] = "mine"
		if got := words(<-events); got != "Applied a=1 uid-1" {
			t.Errorf("the event is %s", got)
		}
		if obj, _, err := s.Informer().Get(key("a")); err != nil || obj.Data["value"] != "1" {
			t.Errorf("the informer's object is %v, %v", obj, err)
		}
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for i := range 10 {
			server.Put(object(strconv.Itoa(i), "1"))
		}
		s := newSubscription(t, config[configMap]{Retriever: server})
		out := s.Signals()
		count := func() int {
			time.Sleep(time.Second)
			return len(received(out, func(struct{}) string { return "" }))
		}
		testrun.Start(t, s.Run)
		<-out
		if got := s.Informer().Len(); got != 10 {
			t.Errorf("the first signal was sent after %d of 10 objects", got)
		}
		if got := count(); got != 0 {
			t.Errorf("%d more signals at the beginning", got)
		}
		for i := range 10 {
			server.Put(object(strconv.Itoa(i), "2"))
		}
		if got := count(); got != 1 {
			t.Errorf("%d signals for ten changes", got)
		}
		server.Delete(key("3"))
		if got := count(); got != 1 {
			t.Errorf("%d signals for a deletion", got)
		}
	})
}

func TestFirstSignalWithoutObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSubscription(t, config[configMap]{
			Retriever: newServer(), Predicate: predicate.Types(informer.Deleted),
		})
		out := s.Signals()
		testrun.Start(t, s.Run)
		synctest.Wait()
		select {
		case <-out:
		default:
			t.Error("no signal")
		}
	})
}

func TestRunClosesChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		for _, name := range []string{"a", "b", "c"} {
			server.Put(object(name, "1"))
		}
		s := newSubscription(t, config[configMap]{Retriever: server})
		events, objects, signals := s.Events(), s.Objects(), s.Signals()
		stop := testrun.Start(t, s.Run)
		synctest.Wait() // all of them are blocked on a send
		stop()
		select {
		case <-events: // undelivered changes are dropped
		default:
			t.Error("the channel of events was not closed")
		}
		for range objects {
			t.Error("an object was sent after the end")
		}
		<-signals // sent before
		if _, open := <-signals; open {
			t.Error("the channel of signals was not closed")
		}
		if _, open := <-events; open {
			t.Error("the channel of events was not closed")
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it has run before") {
			t.Errorf("second Run: %v", err)
		}
		lateServer := newSubscription(t, config[configMap]{Retriever: server})
		testrun.Start(t, lateServer.Run)()
		if _, open := <-lateServer.Events(); open {
			t.Error("a channel that was requested after the end is not closed")
		}
		if _, _, open := server.Counts(); open != 0 {
			t.Errorf("%d watches are open", open)
		}
	})
}

func TestChannelsRequestedDuringRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, s := newSubscribed(t, object("a", "1"))
		testrun.Start(t, s.Run)
		time.Sleep(time.Minute)
		expect(t, s.Events(), "Applied a=1 uid-1", "Synced")
		expectObjects(t, s.Objects(), "a=1")
		server.Put(object("a", "2"))
		expect(t, s.Events(), "Applied a=2 uid-1")
		expectObjects(t, s.Objects(), "a=2")
		<-s.Signals()
	})
}

func TestInformersAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Put(object("a", "1"))
		shared, err := informer.New(informer.Config[configMap]{Retriever: server, Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		slow := newSubscription(t, config[configMap]{Informer: shared, Name: "slow"})
		quick := newSubscription(t, config[configMap]{Informer: shared})
		if slow.Name() != "slow" || quick.Name() != shared.Name() || quick.Informer() != shared {
			t.Errorf("the names are %q and %q", slow.Name(), quick.Name())
		}
		ignored, out := slow.Events(), quick.Events()
		stopSlow := testrun.Start(t, slow.Run)
		testrun.Start(t, quick.Run)
		expect(t, out, "Applied a=1 uid-1", "Synced")
		server.Put(object("a", "2")) // slow is not received from
		expect(t, out, "Applied a=2 uid-1")
		if _, _, open := server.Counts(); open != 1 {
			t.Errorf("%d watches are open, want one for both", open)
		}
		synctest.Wait()
		if len(ignored) != 0 {
			t.Error("the channel of a slow receiver has a buffer")
		}
		stopSlow()
		server.Put(object("a", "3"))
		expect(t, out, "Applied a=3 uid-1")
	})
}

func TestNewRequiresInformer(t *testing.T) {
	t.Parallel()
	want := `new subscription "x": an Informer is required: informer.New makes one`
	if _, err := subscription.New(subscription.Config[configMap]{Name: "x"}); err == nil || err.Error() != want {
		t.Errorf("the error is: %v\nwant: %s", err, want)
	}
}

// A program that keeps a table of all objects.
func ExampleSubscription_Events() {
	server := newServer() // in a program: informer.Retrieve[*corev1.ConfigMap](cluster)
	server.Put(object("a", "1"))
	objects, err := informer.New(informer.Config[configMap]{Retriever: server})
	if err != nil {
		panic(err)
	}
	s, err := subscription.New(subscription.Config[configMap]{Informer: objects})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	table := map[string]string{}
	for event := range s.Events() { // until Run has ended
		switch {
		case event.Synced:
			server.Delete(key("a"))
			server.Put(object("b", "2")) // by another client
		case event.Deleted:
			delete(table, event.Key.Name)
		default:
			table[event.Key.Name] = event.Object.Data["value"]
		}
		fmt.Println(table)
		if table["b"] == "2" && len(table) == 1 {
			cancel()
		}
	}
	fmt.Println(<-ended)
	// Output:
	// map[a:1]
	// map[a:1]
	// map[]
	// map[b:2]
	// <nil>
}

// A command that shows objects as they change.
func ExampleSubscription_Objects() {
	server := newServer() // in a program: informer.Retrieve[*corev1.ConfigMap](cluster)
	server.Put(object("a", "1"))
	objects, err := informer.New(informer.Config[configMap]{Retriever: server})
	if err != nil {
		panic(err)
	}
	s, err := subscription.New(subscription.Config[configMap]{Informer: objects})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	changed := s.Objects()
	fmt.Println(nameOf(<-changed))
	server.Put(object("a", "2"))
	fmt.Println(nameOf(<-changed))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// a=1
	// a=2
	// <nil>
}

// A program that computes a value from all objects, whenever one of them has changed.
func ExampleSubscription_Signals() {
	server := newServer() // in a program: informer.Retrieve[*corev1.ConfigMap](cluster)
	server.Put(object("a", "1"))
	objects, err := informer.New(informer.Config[configMap]{Retriever: server})
	if err != nil {
		panic(err)
	}
	s, err := subscription.New(subscription.Config[configMap]{Informer: objects})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	for range s.Signals() { // the first one is sent when all objects have been read
		fmt.Println("there are", objects.Len())
		if objects.Len() == 2 {
			break
		}
		server.Put(object("b", "1"))
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// there are 1
	// there are 2
	// <nil>
}
