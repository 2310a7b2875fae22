package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
)

// versions is a Retriever that records the start versions of watches.
type versions struct {
	*kindserver.Server[configMap]
	mu   sync.Mutex
	from []string
}

func (v *versions) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	v.mu.Lock()
	v.from = append(v.from, opts.ResourceVersion)
	v.mu.Unlock()
	return v.Server.Watch(ctx, opts)
}

func (v *versions) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	from := v.from
	v.from = nil
	return from
}

func TestNextWatchStartsAtLastVersion(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "0"))
				v := &versions{Server: server}
				f := start(t, server, v)
				v.take()
				reached := ""
				for round := range 3 {
					for i := range 1000 {
						reached = server.Put(object("a", strconv.Itoa(i+1))).ResourceVersion
						if i%100 == 0 {
							time.Sleep(time.Second)
						}
					}
					synctest.Wait()
					f.seen.take()
					server.DropWatches() // as the server does every 5 to 10 min, and when it stops
					time.Sleep(time.Minute)
					if diff := cmp.Diff([]string{reached}, v.take()); diff != "" {
						t.Errorf("round %d: watches begin at (-want +got):\n%s", round, diff)
					}
					f.expect() // nothing is announced again
					if got := f.informer.Health().ResourceVersion; got != reached {
						t.Errorf("round %d: the informer is said to have come to %s, want %s", round, got, reached)
					}
				}
			})
		})
	}
}

// After a stream that breaks with an error, the informer lists a state that is at least as new as the last event.
func TestListAfterBrokenWatchIsNotOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "0"))
		var mu sync.Mutex
		var script *watch.FakeWatcher
		lists := []string{}
		lw := listsFrom{scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			if script == nil {
				script = watch.NewFake()
				return script, nil
			}
			return nil, nil
		}}, func(version string) { mu.Lock(); lists = append(lists, version); mu.Unlock() }}
		start(t, server, lw)
		for i := range 5 {
			script.Modify(server.Put(object("a", strconv.Itoa(i+1))))
		}
		script.Error(&apierrors.NewInternalError(errors.New("conversion webhook failed")).ErrStatus)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, from := range lists[1:] {
			if from != "1006" {
				t.Errorf("a list from %q after the watch had come to 1006", from)
			}
		}
		if len(lists) > 3 {
			t.Errorf("%d lists", len(lists))
		}
	})
}

type listsFrom struct {
	scripted
	note func(version string)
}

func (l listsFrom) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l.note(opts.ResourceVersion)
	return l.scripted.List(ctx, opts)
}

func TestListAfter410IsNotReportedAsError(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("stays", "1"), object("goes", "1"))
				var before atomic.Pointer[func()] // called before the next watch
				f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
					if do := before.Swap(nil); do != nil {
						(*do)()
					}
					return nil, nil
				}})
				f.seen.take()
				do := func() {
					server.Delete(key("goes"))
					server.Put(object("comes", "1"))
					server.Compact()
				}
				time.Sleep(2 * time.Second) // shorter watches are reported
				before.Store(&do)
				server.DropWatches()
				time.Sleep(time.Minute)
				f.expectOnce("added comes", "deleted goes")
				if err := f.informer.Ready(); err != nil {
					t.Error(err)
				}
				if logs := f.logs.String(); strings.Contains(logs, "level=WARN") {
					t.Errorf("a 410 is logged as trouble:\n%s", logs)
				}
			})
		})
	}
}

// A streamed list may end again and again, for example because a proxy cuts long responses. It is not silent, and sends
// no error.
func TestStreamedListsThatEndEarlyAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		a := server.Put(object("a", "1"))
		f := start(t, server, scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil {
				return nil, nil
			}
			w := watch.NewFakeWithChanSize(1, false)
			w.Add(a)
			time.AfterFunc(3*time.Second, w.Stop)
			return w, nil
		}})
		time.Sleep(5 * time.Second)
		if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "ended before the list did") {
			t.Fatalf("Ready: %v", err)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(f.logs.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings, want one about the streams and one about the lists in pages", n)
		}
		if err := f.informer.Ready(); err != nil {
			t.Error(err)
		}
		f.expect("listed a")
	})
}
