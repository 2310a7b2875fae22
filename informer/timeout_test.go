package informer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

type hook func(r *http.Request, do func() *http.Response) (*http.Response, error)

// retryAfter returns a hook that responds with a Retry-After of 10 hours.
func retryAfter(code int) hook {
	return func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {"36000"}}, Body: http.NoBody, Request: r}, nil
	}
}

// hangs never responds.
func hangs(r *http.Request, _ func() *http.Response) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// late responds after 4 minutes.
func late(r *http.Request, do func() *http.Response) (*http.Response, error) {
	select {
	case <-time.After(4 * time.Minute):
		return do(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// stalls responds with the first byte only.
func stalls(r *http.Request, do func() *http.Response) (*http.Response, error) {
	response := do()
	_ = response.Body.Close()
	response.Body = stalled{r.Context().Done(), new(atomic.Bool)}
	return response, nil
}

type stalled struct {
	cancelled <-chan struct{}
	sent      *atomic.Bool
}

func (s stalled) Read(p []byte) (int, error) {
	if !s.sent.Swap(true) {
		return copy(p, "{"), nil
	}
	<-s.cancelled
	return 0, context.Canceled
}

func (s stalled) Close() error { return nil }

// A request without a response, and a response with a Retry-After of hours, are reported, and the request is repeated:
// after at most 15 min.
func TestInformerReportsRequestsWithoutResponse(t *testing.T) {
	all := func(*http.Request) bool { return true }
	lists := func(r *http.Request) bool {
		return r.URL.Query().Get("watch") == "" || r.URL.Query().Get("sendInitialEvents") == "true"
	}
	watches := func(r *http.Request) bool { return !lists(r) }
	for name, test := range map[string]struct {
		answer          hook
		to              func(*http.Request) bool
		relists         bool // the watch cannot continue where it was
		named, recovers time.Duration
	}{
		"429":             {answer: retryAfter(http.StatusTooManyRequests), to: all, named: 15 * time.Second, recovers: 16 * time.Minute},
		"429 to lists":    {answer: retryAfter(http.StatusTooManyRequests), to: lists, relists: true, named: 15 * time.Second, recovers: 16 * time.Minute},
		"503":             {answer: retryAfter(http.StatusServiceUnavailable), to: all, relists: true, named: 15 * time.Second, recovers: 16 * time.Minute},
		"nothing":         {answer: hangs, to: all, named: 2 * time.Minute, recovers: 5 * time.Minute},
		"nothing to list": {answer: hangs, to: lists, relists: true, named: 2 * time.Minute, recovers: 5 * time.Minute},
		"lists stall":     {answer: stalls, to: lists, relists: true, named: 2 * time.Minute, recovers: 5 * time.Minute},
		"watches hang":    {answer: hangs, to: watches, named: 2 * time.Minute, recovers: 5 * time.Minute},
		"late":            {answer: late, to: all, relists: true, named: 2 * time.Minute, recovers: 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apiserver.ConfigMaps())
				put := func(value string) {
					server.Edit("configmaps", key("a"), "user", func(obj map[string]any) bool {
						obj["data"] = map[string]any{"value": value}
						return true
					})
				}
				put("1")
				logs := &logBuffer{}
				i := newInformer(t, server, informer.Config[*corev1.ConfigMap]{Logger: logs.logger()}, kube.Selection{})
				defer joinSynced(t, i)()
				var away atomic.Bool
				away.Store(true)
				server.Hook(func(r *http.Request, do func() *http.Response) (*http.Response, error) {
					if away.Load() && test.to(r) {
						return test.answer(r, do)
					}
					return do(), nil
				})
				// The watch must not deliver the change before its history is removed, or it could continue.
				server.HoldWatches("configmaps")
				server.Break("configmaps", false)
				put("2")
				server.Break("configmaps", test.relists)
				server.ReleaseWatches("configmaps")
				put("3")
				within := func(limit time.Duration, what string, done func() bool) {
					t.Helper()
					began := time.Now()
					for !done() && time.Since(began) < 24*time.Hour {
						time.Sleep(time.Second)
					}
					if took := time.Since(began); took > limit {
						t.Errorf("%s after %s, want at most %s\n%s", what, took, limit, logs)
					}
				}
				within(test.named, "reported", func() bool { return i.Ready() != nil })
				synctest.Wait() // the log line follows Ready
				if text := logs.String(); !strings.Contains(text, "level=WARN") {
					t.Errorf("nothing was logged:\n%s", text)
				}
				if name != "late" {
					time.Sleep(20 * time.Minute)
					away.Store(false)
				}
				within(test.recovers, "shown again", func() bool {
					obj, _, err := i.Get(key("a"))
					return err == nil && obj.Data["value"] == "3" && i.Ready() == nil
				})
			})
		})
	}
}

// hangingLists is a Retriever whose lists block until their context ends.
type hangingLists struct {
	*kindserver.Server[configMap]
	hang *atomic.Bool
}

func (h hangingLists) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if h.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Server.List(ctx, opts)
}

func TestFirstListWithoutResponseIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hang.Store(true)
		server := newServer(false, object("a", "1"))
		f := start(t, server, hangingLists{server, &hang})
		time.Sleep(2 * time.Minute)
		if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("after 2 minutes: %v", err)
		}
		hang.Store(false)
		time.Sleep(4 * time.Minute)
		f.expect("listed a")
		if err := f.informer.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A slow subscriber must not look like a missing response of the API server.
func TestSlowSubscriberDoesNotEndLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false, object("a", "1"), object("b", "1"))
		f := start(t, server, hangingLists{server, new(atomic.Bool)})
		var slow atomic.Int32
		defer f.informer.Subscribe(func(informer.Change) { slow.Add(1); time.Sleep(7 * time.Minute) })()
		server.Fail("watch", errors.New("down"))
		server.DropWatches()
		synctest.Wait()
		server.Put(object("a", "2"))
		server.Put(object("b", "2"))
		server.Compact()
		server.Fail("watch", nil)
		time.Sleep(time.Hour)
		if slow.Load() != 4 || strings.Count(f.logs.String(), "Caches populated") != 2 {
			t.Errorf("%d changes, want 4 of two lists\n%s", slow.Load(), f.logs)
		}
		if strings.Contains(f.logs.String(), "does not answer") {
			t.Errorf("the server was blamed:\n%s", f.logs)
		}
	})
}
