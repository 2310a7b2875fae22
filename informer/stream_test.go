package informer_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A streamed list may contain events of objects that it has already listed.
func TestEventsDuringStreamedListReplaceItsObjects(t *testing.T) {
	for name, test := range map[string]struct {
		optional   bool
		end        string // version of the list's end
		goes, back []string
	}{
		// Another API server, whose cache is stale, begins with objects that were deleted meanwhile, and catches up.
		"of a server that lags behind": {goes: []string{"deleted z"}, end: "1005", back: []string{"updated a"}},
		"of a kind that was removed":   {optional: true, goes: []string{"deleted a", "deleted z"}, end: "1004", back: []string{"added a", "added z", "deleted z", "updated a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true)
				a, z := server.Put(object("a", "1")), server.Put(object("z", "1"))
				var script atomic.Pointer[[]watch.Event]
				f := startWith(t, server, informer.Config[configMap]{Optional: test.optional, Retriever: scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
					events := script.Load()
					switch {
					case events == nil:
						return nil, nil
					case opts.SendInitialEvents == nil:
						return nil, errors.New("broken")
					}
					w := watch.NewFakeWithChanSize(len(*events), false) // stays open
					for _, e := range *events {
						w.Action(e.Type, e.Object)
					}
					return w, nil
				}}})
				f.expectOnce("listed a", "listed z")
				if test.optional {
					fail(server, kube.ErrNotServed)
				} else {
					server.Delete(key("z"))
				}
				server.DropWatches()
				time.Sleep(2 * time.Minute)
				f.expectOnce(test.goes...)

				at := func(obj configMap, uid types.UID, version string) configMap {
					obj.UID, obj.ResourceVersion = uid, version
					return obj
				}
				end := at(&corev1.ConfigMap{}, "", test.end)
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				script.Store(&[]watch.Event{
					{Type: watch.Added, Object: a},
					{Type: watch.Added, Object: z},
					{Type: watch.Modified, Object: at(object("a", "2"), a.UID, "1004")},
					{Type: watch.Deleted, Object: at(object("z", "1"), z.UID, "1003")},
					{Type: watch.Bookmark, Object: end},
				})
				fail(server, nil)
				server.DropWatches()
				time.Sleep(time.Minute)
				f.expectOnce(test.back...)
				if got := f.value("a") + f.value("z"); got != "2<gone>" {
					t.Errorf("a and z are %q", got)
				}
			})
		})
	}
}

// A slow subscriber must not look like a streamed list that makes no progress.
func TestSlowSubscriberDoesNotEndStreamedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"), object("b", "1"))
		f := startWith(t, server, informer.Config[configMap]{Retriever: server})
		f.stop()
		defer f.informer.Subscribe(func(informer.Change) { time.Sleep(11 * time.Second) })()
		stop := testrun.Start(t, f.informer.Run)
		defer stop()
		time.Sleep(time.Minute)
		if lists, _, _ := server.Counts(); lists != 0 {
			t.Errorf("%d lists in pages", lists)
		}
		if logs := f.logs.String(); strings.Contains(logs, "level=WARN") {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// A 410 for a list of the present state is not about history, and the informer has no fallback for it.
func TestRepeated410IsReported(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	for name, verbs := range map[string][]string{"lists": {"list", "watch"}, "watches": {"watch"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(false, object("a", "1"))
				f := start(t, server, nil)
				for _, verb := range verbs {
					server.Fail(verb, expired)
				}
				time.Sleep(2 * time.Second)
				server.DropWatches()
				time.Sleep(5 * time.Minute)
				if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "too old") {
					t.Errorf("Ready: %v", err)
				}
				for _, verb := range verbs {
					server.Fail(verb, nil)
				}
				time.Sleep(time.Minute)
				if err := f.informer.Ready(); err != nil {
					t.Errorf("healed: %v", err)
				}
			})
		})
	}
}

// The Reflector sleeps when a streamed list ends with "too many requests", and ignores its context.
func TestTooManyRequestsDoNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		server.Fail("list", errors.New("too busy"))
		busy := apierrors.NewTooManyRequests("too busy", 1)
		f := start(t, server, scripted{server, func(metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			w.Error(&busy.ErrStatus)
			return w, nil
		}})
		for range 20 {
			time.Sleep(5 * time.Second)
			began := time.Now()
			f.stop()
			if took := time.Since(began); took > 0 {
				t.Fatalf("it took %s to stop", took)
			}
			f.stop = testrun.Start(t, f.informer.Run)
		}
		f.stop()
	})
}

// client-go retries at once if a streamed list of the present state fails because history is gone.
func TestStreamedListRetriesAreBounded(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	for name, answer := range map[string]func() (watch.Interface, error){
		"answer": func() (watch.Interface, error) { return nil, expired },
		"event": func() (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			w.Error(&expired.ErrStatus)
			return w, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"))
				var asked atomic.Int32
				f := startWith(t, server, informer.Config[configMap]{Retriever: scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents == nil {
						return nil, nil
					}
					if asked.Add(1) > 100 {
						return nil, errors.New("enough")
					}
					return answer()
				}}})
				f.expect("listed a")
				time.Sleep(time.Minute)
				if n := asked.Load(); n > 1 {
					t.Errorf("asked for a streamed list %d times", n)
				}
				if err := f.informer.Ready(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// brokenBody is a response body that ends with a connection error.
type brokenBody struct {
	io.ReadCloser
	err error
}

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = b.err
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The listed objects remain valid when a connection breaks. The watch continues from there.
func TestWatchContinuesAfterBrokenHTTP2Connection(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"http2: client connection lost", "stream error: stream ID 5; INTERNAL_ERROR; received from peer"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lists, breaks atomic.Int32
				s := serve(t, func(a *answer) {
					switch {
					case a.streams:
						lists.Add(1)
						a.event("ADDED", "a", "5")
						a.event("BOOKMARK", "", "6")
						a.event("ADDED", "b", "7")
					case a.FormValue("resourceVersion") == "7":
						a.event("ADDED", "c", "8")
						a.stand()
					default:
						t.Errorf("asked for %s", a.URL)
					}
				})
				cluster := s.connect(t, rest.Config{WrapTransport: func(inner http.RoundTripper) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						response, err := inner.RoundTrip(r)
						if err == nil && r.FormValue("sendInitialEvents") == "true" {
							breaks.Add(1)
							response.Body = brokenBody{response.Body, errors.New(reason)}
						}
						return response, err
					})
				}})
				l := runLive(t, informer.Retrieve[configMap](cluster))
				l.tells("listed a", "added b", "added c")
				if lists.Load() != 1 || breaks.Load() != 1 {
					t.Errorf("%d lists, of which %d broke", lists.Load(), breaks.Load())
				}
				if err := l.Ready(); err != nil || strings.Contains(l.logs.String(), "level=WARN") {
					t.Errorf("Ready: %v; logged:\n%s", err, l.logs)
				}
			})
		})
	}
}

// A streamed list of the present state may begin with the stale content of a server's cache, and end when the cache has
// caught up (KEP-3157). Meanwhile the informer's cache must not go back.
func TestStreamedListOfStaleServerAnnouncesNoChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		a, z := server.Put(object("a", "1")), server.Put(object("z", "1"))
		same := server.Put(object("same", "1"))
		var script atomic.Pointer[[]watch.Event]
		f := startWith(t, server, informer.Config[configMap]{Retriever: scripted{server, func(opts metav1.ListOptions) (watch.Interface, error) {
			events := script.Load()
			switch {
			case events == nil:
				return nil, nil
			case opts.ResourceVersion != "":
				return nil, apierrors.NewResourceExpired("too old")
			}
			w := watch.NewFakeWithChanSize(len(*events), false) // stays open
			for _, e := range *events {
				w.Action(e.Type, e.Object)
			}
			return w, nil
		}}})
		f.expectOnce("listed a", "listed same", "listed z")
		newer := server.Put(object("a", "2"))
		server.Delete(key("z"))
		f.expectOnce("deleted z", "updated a")

		gone := z.DeepCopy()
		gone.ResourceVersion = "1005"
		end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1005"}}
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		script.Store(&[]watch.Event{
			{Type: watch.Added, Object: a},
			{Type: watch.Added, Object: same},
			{Type: watch.Added, Object: z},
			{Type: watch.Modified, Object: newer},
			{Type: watch.Deleted, Object: gone},
			{Type: watch.Bookmark, Object: end},
		})
		time.Sleep(2 * time.Second) // shorter watches are reported
		server.DropWatches()
		time.Sleep(time.Minute)
		f.expect()
		if got := f.value("a") + f.value("same") + f.value("z"); got != "21<gone>" {
			t.Errorf("a, same and z are %q", got)
		}
	})
}
