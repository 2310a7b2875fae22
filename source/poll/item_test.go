package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// content returns an item with Content.
func content(id, text string, keys ...kube.Key) poll.Item {
	return poll.Item{ID: id, Content: []byte(text), Keys: keys}
}

// readItem returns the result of Item as text.
func readItem(s *poll.Source, id string) string {
	item, found, err := s.Item(id)
	switch {
	case errors.Is(err, poll.ErrNotPolled):
		return "not polled"
	case err != nil:
		return err.Error()
	case !found:
		return "not found"
	}
	return string(item.Content)
}

func TestPollItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		expect := func(s *poll.Source, id, want string) {
			t.Helper()
			synctest.Wait()
			if got := readItem(s, id); got != want {
				t.Errorf("Item(%q): %q, want %q", id, got, want)
			}
		}
		o.set(content("x", "red"))
		o.fail(errors.New("away"))
		s, _, stop := runPoll(t, poll.Config{Poller: o, KeepItems: true})
		expect(s, "x", "not polled")
		o.set(content("x", "red"), content("y", "blue"))
		time.Sleep(time.Hour)
		expect(s, "x", "red")
		expect(s, "z", "not found")
		o.set(content("x", "green"))
		time.Sleep(time.Hour)
		expect(s, "x", "green")
		expect(s, "y", "not found")
		o.fail(errors.New("away")) // the items stay
		time.Sleep(time.Hour)
		expect(s, "x", "green")
		stop()
		expect(s, "x", "green") // handlers may still be running
		_, stop = rerun(t, s)
		defer stop()
		expect(s, "x", "not polled") // a new term starts without items
		o.set(content("x", "white"))
		time.Sleep(time.Hour)
		expect(s, "x", "white")
	})
}

func TestPollItemRequiresKeepItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(content("x", "red"))
		s, _, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		synctest.Wait()
		if got := readItem(s, "x"); !strings.Contains(got, "KeepItems") {
			t.Errorf("Item: %q", got)
		}
	})
}

// Item returns a copy, because the Poller may reuse its result.
func TestPollItemReturnsCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buffer, keys := []byte("red"), []kube.Key{key("a")}
		s, _, stop := runPoll(t, poll.Config{KeepItems: true, Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			return []poll.Item{{ID: "x", Content: buffer, Keys: keys}}, nil
		})})
		defer stop()
		synctest.Wait()
		copy(buffer, "xxx")
		keys[0] = key("b")
		if item, _, err := s.Item("x"); err != nil || string(item.Content) != "red" || item.Keys[0] != key("a") {
			t.Errorf("%+v, %v", item, err)
		}
	})
}

// If two controllers run a source, it keeps the items of the poll that began last, even if an earlier poll ends after
// it.
func TestPollItemOfTwoRunsIsLatest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int32
		s := poll.New(poll.Config{Name: "outside", Jitter: -1, KeepItems: true, Interval: time.Hour, Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			n := polls.Add(1)
			items := []poll.Item{content("x", fmt.Sprint(n))}
			if n == 1 {
				time.Sleep(10 * time.Second)
			}
			return items, nil
		})})
		_, stop := rerun(t, s)
		defer stop()
		time.Sleep(time.Second)
		_, stop2 := rerun(t, s)
		defer stop2()
		time.Sleep(time.Minute)
		if got := readItem(s, "x"); got != "2" {
			t.Errorf("the item is of poll %s, want 2", got)
		}
	})
}

// Handlers that run before the first poll has succeeded are called again after it: for items in the document and for
// missing items, whether they returned ErrNotPolled or not. No object runs more than twice, and a later change of the
// item ends a backoff.
func TestObjectsAreHandledAgainAfterFirstPoll(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]bool{"ErrNotPolled is returned": true, "ErrNotPolled is swallowed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const objects = 1500
				server := newServer()
				o := &outside{}
				var items []poll.Item
				for n := range objects {
					name := fmt.Sprint("o", n)
					server.Put(child(name))
					if n%3 > 0 {
						items = append(items, content(name, "red", key(name)))
					}
				}
				o.set(items...)
				o.fail(errors.New("away"))
				polled := poll.New(poll.Config{Name: "outside", Poller: o, Jitter: -1, Interval: 10 * time.Second, MaxBackoff: 10 * time.Second, KeepItems: true})
				saw, runs := map[string]string{}, map[string]int{}
				var mostReady int
				var ctrl *controller.Controller[configMap]
				ctrl, err := controller.New(controller.Config[configMap]{
					Name: "test", Retriever: server, Workers: 1, ResyncInterval: -1, Sources: []controller.Source{polled}, Logger: slog.New(slog.DiscardHandler),
					Retry: retry.Config{Every: retry.Policy{Base: time.Hour, Max: time.Hour, Jitter: -1}},
					Handler: func(_ context.Context, obj configMap) error {
						runs[obj.Name]++
						mostReady = max(mostReady, ctrl.Stats().Ready)
						saw[obj.Name] = readItem(polled, obj.Name)
						if _, _, err := polled.Item(obj.Name); failing && err != nil {
							return err
						}
						if saw[obj.Name] == "wrong" {
							return errors.New("the item is wrong")
						}
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				testrun.Start(t, ctrl.Run)
				time.Sleep(5 * time.Minute)
				o.set(items...)
				time.Sleep(5 * time.Minute)
				synctest.Wait() // the handlers' writes to saw and runs happen before the reads below
				for n := range objects {
					name := fmt.Sprint("o", n)
					want := "red"
					if n%3 == 0 {
						want = "not found"
					}
					if saw[name] != want || runs[name] != 2 {
						t.Fatalf("the handler of %s ran %d times, and last saw %q, want %q", name, runs[name], saw[name], want)
					}
				}
				if mostReady > 1024 {
					t.Errorf("%d keys were queued at a time", mostReady)
				}
				items = slices.Clone(items)
				items[0].Content = []byte("wrong")
				o.set(items...)
				time.Sleep(time.Minute)
				synctest.Wait()
				items = slices.Clone(items)
				items[0].Content = []byte("blue")
				o.set(items...)
				time.Sleep(time.Minute)
				synctest.Wait()
				name := items[0].ID
				if saw[name] != "blue" || runs[name] != 4 {
					t.Errorf("the handler of %s ran %d times, and last saw %q", name, runs[name], saw[name])
				}
				before := maps.Clone(runs)
				time.Sleep(time.Hour - 15*time.Minute)
				synctest.Wait()
				if !maps.Equal(before, runs) {
					t.Error("without a change, handlers ran again")
				}
			})
		})
	}
}

// No handler reads an item of a poll of an earlier term.
func TestPollItemOfPreviousTermIsNotRead(t *testing.T) {
	t.Parallel()
	server := newServer()
	for n := range 50 {
		server.Put(child(fmt.Sprint("o", n)))
	}
	inf := newInformer(t, server)
	joined, leave := context.WithCancel(t.Context())
	defer leave()
	defer inf.Join(joined)()
	if err := inf.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fails, stale atomic.Bool
	polled := poll.New(poll.Config{
		Name: "outside", KeepItems: true,
		Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			if fails.Load() {
				return nil, errors.New("away")
			}
			return []poll.Item{content("x", "red")}, nil
		}),
	})
	handled := make(chan struct{}, 1000)
	ctrl, err := controller.New(controller.Config[configMap]{
		Name: "test", Informer: inf, ResyncInterval: -1, Sources: []controller.Source{polled}, Logger: slog.New(slog.DiscardHandler),
		Handler: func(context.Context, configMap) error {
			if _, _, err := polled.Item("x"); err == nil && fails.Load() {
				stale.Store(true)
			}
			handled <- struct{}{}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for range 100 {
		for _, failing := range []bool{false, true} {
			fails.Store(failing)
			stop := testrun.Start(t, ctrl.Run)
			for range 50 {
				<-handled
			}
			for !failing && polled.Ready() != nil {
				runtime.Gosched()
			}
			stop()
			for len(handled) > 0 {
				<-handled
			}
			if stale.Swap(false) {
				bad++
			}
		}
	}
	if bad > 0 {
		t.Errorf("in %d of 100 terms, a handler has read what the term before had found", bad)
	}
}

// vicious is an error with a method As that panics.
type vicious struct{}

func (vicious) Error() string { return "no" }
func (vicious) As(any) bool   { panic("As must not be called") }

// If a Poller ends its goroutine, or returns an error that panics when it is examined, the controller stops with an
// error and the process continues. The controller does not continue without polls.
func TestBrokenPollerEndsController(t *testing.T) {
	t.Parallel()
	for want, list := range map[string]func(context.Context) ([]poll.Item, error){
		"runtime.Goexit":        func(context.Context) ([]poll.Item, error) { runtime.Goexit(); return nil, nil },
		"As must not be called": func(context.Context) ([]poll.Item, error) { return nil, vicious{} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			inf := newInformer(t, newServer())
			ctrl, err := controller.New(controller.Config[configMap]{
				Name: "test", Informer: inf, Logger: slog.New(slog.DiscardHandler),
				Sources: []controller.Source{poll.New(poll.Config{Name: "outside", Poller: poll.List(list)})},
				Handler: func(context.Context, configMap) error { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run returned %v, want an error about %q", err, want)
			}
		})
	}
}
