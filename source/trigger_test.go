package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// startTriggers runs a source and its informers until the test ends, and returns the triggers of the keys since the last
// call.
func startTriggers(t *testing.T, s controller.Source) func() []string {
	t.Helper()
	q := &queue{}
	for _, read := range prepare(t, s).Reads {
		t.Cleanup(read.Join(t.Context()))
	}
	testrun.Start(t, func(ctx context.Context) error {
		return run(ctx, s, func(key kube.Key, why controller.Trigger) {
			if why.All { // no key
				return
			}
			q.note(key, fmt.Sprint(strings.TrimSpace(string(why.Change.Type)+" "+why.Detail), " ", why.Priority, " ", why.After))
		})
	})
	return func() []string {
		synctest.Wait()
		return q.take()
	}
}

// Each source, also one of a program, keeps its keys and its name, and its keys get the changed priority and delay.
func TestWithTriggerChangesKeysOfEverySource(t *testing.T) {
	t.Parallel()
	const sourceName = "source"
	for name, open := range map[string]func(t *testing.T) (s controller.Source, name string){
		"Mapped": func(t *testing.T) (controller.Source, string) {
			t.Helper()
			return source.Mapped(newInformer(t, newServer(pointing("c", "a"))), targets), "mapped children"
		},
		"OwnedIn": func(t *testing.T) (controller.Source, string) {
			t.Helper()
			return source.OwnedIn(newInformer(t, newServer(child("c", by("a")))), source.Owner{}), "owned children"
		},
		"OwnedBy": func(t *testing.T) (controller.Source, string) {
			t.Helper()
			return source.OwnedBy(newInformer(t, newServer(child("c"))), func(*metav1.PartialObjectMetadata) []kube.Key {
				return []kube.Key{key("a")}
			}), "owned children"
		},
		"OwnerLabel": func(t *testing.T) (controller.Source, string) {
			t.Helper()
			return source.OwnerLabel(newInformer(t, newServer(labeled("c", map[string]string{"of": "a"}))), "of"),
				"owner label children"
		},
		"Shared": func(t *testing.T) (controller.Source, string) {
			t.Helper()
			return source.Shared(sourceName, runningShared(t, newServer(pointing("c", "a"))), targets), sourceName
		},
		"Channel": func(*testing.T) (controller.Source, string) {
			keys := make(chan kube.Key, 1)
			keys <- key("a")
			return source.Channel(sourceName, keys), sourceName
		},
		"SourceFunc": func(*testing.T) (controller.Source, string) {
			return controller.SourceFunc(func(ctx context.Context, enqueue controller.Enqueue) error {
				enqueue(key("a"), controller.Trigger{})
				<-ctx.Done()
				return nil
			}), "func"
		},
		"poll": func(*testing.T) (controller.Source, string) {
			return poll.New(poll.Config{Name: sourceName, Poller: poll.List(func(context.Context) ([]poll.Item, error) {
				return []poll.Item{{ID: "i", Keys: []kube.Key{key("a")}}}, nil
			})}), sourceName
		},
		"a source without a name": func(*testing.T) (controller.Source, string) { return &nameless{}, "source_test.nameless" },
		"twice": func(*testing.T) (controller.Source, string) {
			return source.WithTrigger(&nameless{}, func(_ kube.Key, why *controller.Trigger) { why.Detail = "" }), "source_test.nameless"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				original, wantName := open(t)
				s := source.WithTrigger(original, func(k kube.Key, why *controller.Trigger) {
					if k != key("a") {
						t.Errorf("called for %s", k)
					}
					why.Priority, why.After = controller.PriorityHigh, time.Minute
				})
				prepared, plain := prepare(t, s), prepare(t, original)
				if prepared.Name != wantName || len(prepared.Reads) != len(plain.Reads) ||
					(prepared.Keys == nil) != (plain.Keys == nil) || (prepared.Ready == nil) != (plain.Ready == nil) {
					t.Errorf("prepared as %q with %d informers", prepared.Name, len(prepared.Reads))
				}
				got := startTriggers(t, s)()
				if len(got) != 1 || !strings.HasPrefix(got[0], "ns/a: ") || !strings.HasSuffix(got[0], fmt.Sprint(controller.PriorityHigh, " 1m0s")) {
					t.Errorf("enqueued %q, want ns/a with high priority after 1m", got)
				}
			})
		})
	}
}

// nameless is a source that enqueues one key when it starts.
type nameless struct{}

func (*nameless) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Start: func(ctx context.Context, enqueue controller.Enqueue) (func() error, error) {
		enqueue(key("a"), controller.Trigger{Type: controller.CauseListed})
		return func() error { <-ctx.Done(); return nil }, nil
	}}, nil
}

// The function has the object before and after the change, and the key.
func TestWithTriggerReadsBothStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(pointing("c", "a b"))
		take := startTriggers(t, source.WithTrigger(source.Mapped(newInformer(t, server), targets),
			func(k kube.Key, why *controller.Trigger) {
				before, after, err := informer.Decode[configMap](why.Change)
				if err != nil {
					t.Error(err)
				}
				refers := func(obj configMap) bool { return obj != nil && slices.Contains(targets(obj), k) }
				if refers(before) && !refers(after) {
					why.Priority, why.Detail = controller.PriorityHigh, "no longer referred to"
				}
			}))
		expect := func(want ...string) {
			t.Helper()
			if got := take(); !slices.Equal(got, want) {
				t.Errorf("enqueued %q, want %q", got, want)
			}
		}
		normal, high := fmt.Sprint(controller.PriorityNormal), fmt.Sprint(controller.PriorityHigh)
		expect("ns/a: listed "+normal+" 0s", "ns/b: listed "+normal+" 0s")
		server.Put(pointing("c", "b d"))
		expect("ns/a: updated no longer referred to "+high+" 0s", "ns/b: updated "+normal+" 0s", "ns/d: updated "+normal+" 0s")
		server.Delete(key("c"))
		expect("ns/b: deleted no longer referred to "+high+" 0s", "ns/d: deleted no longer referred to "+high+" 0s")
	})
}

// A panic, or the end of the goroutine, must lose neither the key nor the process.
func TestPanicOfWithTriggerKeepsOriginalTrigger(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){
		"panic":  func() { panic("broken function") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				s := source.WithTrigger(source.Mapped(newInformer(t, newServer(pointing("c", "a b"))), targets),
					func(_ kube.Key, why *controller.Trigger) {
						why.After, why.Change = time.Hour, informer.Change{}
						fail()
					})
				take := startTriggers(t, source.WithLogger(s, log.logger()))
				normal := fmt.Sprint(controller.PriorityNormal)
				if got := take(); !slices.Equal(got, []string{"ns/a: listed " + normal + " 0s", "ns/b: listed " + normal + " 0s"}) {
					t.Errorf("enqueued %q", got)
				}
				if text := log.String(); strings.Count(text, "stack=") != 1 || !strings.Contains(text, "the function of WithTrigger") ||
					!strings.Contains(text, `source="mapped children"`) {
					t.Errorf("log: %s", text)
				}
			})
		})
	}
}

func TestWithTriggerReportsMistakes(t *testing.T) {
	t.Parallel()
	change := func(kube.Key, *controller.Trigger) {}
	for name, test := range map[string]struct {
		source controller.Source
		want   string
	}{
		"no source":         {source.WithTrigger(nil, change), "the source and the function are required"},
		"a typed nil":       {source.WithTrigger((*nameless)(nil), change), "the source and the function are required"},
		"no function":       {source.WithTrigger(&nameless{}, nil), "the source and the function are required"},
		"an invalid source": {source.WithTrigger(source.Mapped(nil, targets), change), "source mapped: the informer is required"},
	} {
		if err := validate(test.source); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A controller without a primary kind resyncs the keys; the causes have the name of the source; a removed source enqueues
// nothing.
func TestWithTriggerInController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, runs := newServer(pointing("c", "a")), &queue{}
		began := time.Now()
		ctrl, err := controller.New(controller.Config[controller.NoObject]{
			Name: "test", Logger: slog.New(slog.DiscardHandler), ResyncInterval: time.Hour,
			Reconciler: func(ctx context.Context, key kube.Key) error {
				run, _ := controller.RunFrom(ctx)
				runs.note(key, fmt.Sprint(time.Since(began).Round(time.Second), " ", run.Causes))
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, ctrl.Run)
		synctest.Wait()
		remove, err := ctrl.AddSource(source.WithTrigger(source.Mapped(newInformer(t, server), targets),
			func(_ kube.Key, why *controller.Trigger) { why.After = 10 * time.Second }))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		runs.expect(t, "ns/a: 10s mapped children: ns/c listed")
		server.Put(pointing("c", "a b"))
		time.Sleep(20 * time.Second)
		runs.expect(t, "ns/a: 30s mapped children: ns/c updated (spec) by editor", "ns/b: 30s mapped children: ns/c updated (spec) by editor")
		time.Sleep(2 * time.Hour)
		if got := strings.Join(runs.take(), "\n"); strings.Count(got, "resync") < 2 {
			t.Errorf("resyncs:\n%s", got)
		}
		remove()
		server.Put(pointing("c", "d"))
		time.Sleep(time.Minute)
		runs.expect(t)
	})
}
