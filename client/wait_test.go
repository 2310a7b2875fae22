package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// waitServer is a server in memory whose requests are written down.
type waitServer struct {
	*fakeserver.Server
	client *client.Client

	mu       sync.Mutex
	requests []string // guarded by mu; "discover", "list", "watch"
	unserved bool     // guarded by mu; no kind is known
}

func newWaitServer(t *testing.T) *waitServer {
	t.Helper()
	s := &waitServer{Server: fakeserver.New(
		fakeserver.Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Status: true},
		fakeserver.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), Resource: "nodes", ClusterScoped: true},
	)}
	config := s.Config("tests")
	config.Transport = s
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = client.New(client.Config{Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *waitServer) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := "list"
	switch parts := strings.Split(req.URL.Path, "/"); {
	case len(parts) < 5:
		kind = "discover"
	case req.URL.Query().Has("watch"):
		kind = "watch"
	}
	s.mu.Lock()
	s.requests = append(s.requests, kind)
	unserved := s.unserved
	s.mu.Unlock()
	if unserved {
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: io.NopCloser(strings.NewReader("404 page not found")),
		}, nil
	}
	return s.Server.RoundTrip(req)
}

// asked returns the requests since the last call.
func (s *waitServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}

func (s *waitServer) serve(served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved = !served
}

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// put creates or changes the Deployment: so many of three replicas are available.
func (s *waitServer) put(available int64) {
	s.Edit("deployments", webKey(), "controller", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"replicas": int64(3)}
		obj["status"] = map[string]any{
			"observedGeneration": int64(1), "replicas": int64(3), "updatedReplicas": int64(3), "availableReplicas": available,
		}
		return true
	})
}

// fail makes the Deployment one that makes no progress.
func (s *waitServer) fail() {
	s.Edit("deployments", webKey(), "controller", func(obj map[string]any) bool {
		obj["status"] = map[string]any{
			"observedGeneration": int64(1),
			"conditions":         []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}},
		}
		return true
	})
}

func (s *waitServer) delete() {
	s.Edit("deployments", webKey(), "somebody", func(map[string]any) bool { return false })
}

func (s *waitServer) wait(ctx context.Context, options ...client.Option) (*appsv1.Deployment, error) {
	return client.WaitFor[*appsv1.Deployment](ctx, s.client, webKey(), readiness.RolledOut, options...)
}

// waiting tells of a wait that goes on beside the test.
type waiting struct {
	obj   *appsv1.Deployment
	err   error
	after time.Duration
	ended chan struct{}
}

func (s *waitServer) begin(ctx context.Context, options ...client.Option) *waiting {
	w := &waiting{ended: make(chan struct{})}
	began := time.Now()
	go func() { // waited for by the test, through w.ended
		defer close(w.ended)
		w.obj, w.err = s.wait(ctx, options...)
		w.after = time.Since(began)
	}()
	return w
}

// has fails the test unless the wait has ended after a time, without an error.
func (w *waiting) has(t *testing.T, after time.Duration) {
	t.Helper()
	<-w.ended
	if w.err != nil {
		t.Fatalf("after %s: %v", w.after, w.err)
	}
	if w.after != after || w.obj.Status.AvailableReplicas != 3 {
		t.Errorf("waited for %s, want %s; the object has %d replicas available", w.after, after, w.obj.Status.AvailableReplicas)
	}
}

func TestWaitForWhatIsThereTakesOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(3)
		s.begin(t.Context()).has(t, 0)
		if diff := cmp.Diff([]string{"discover", "list"}, s.asked()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestWaitForWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		w := s.begin(t.Context(), client.Within(-1))
		time.Sleep(time.Hour)
		s.Edit("deployments", kube.Key{Namespace: "shop", Name: "other"}, "somebody", func(map[string]any) bool { return true })
		s.put(1)
		s.put(2)
		time.Sleep(time.Hour)
		s.delete()
		s.put(2)
		time.Sleep(time.Hour)
		s.put(3)
		w.has(t, 3*time.Hour)
		if w.obj.Kind != "Deployment" {
			t.Errorf("the object's kind is %q", w.obj.Kind)
		}
		if diff := cmp.Diff([]string{"discover", "list", "watch"}, s.asked()); diff != "" {
			t.Errorf("requests in three hours (-want +got):\n%s", diff)
		}
	})
}

func TestWaitForGoesOnWhenWatchesEnd(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]bool{"and the next one takes up": false, "and the history is gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				s.put(1)
				w := s.begin(t.Context())
				for range 5 {
					time.Sleep(30 * time.Second)
					s.Break("deployments", history)
				}
				time.Sleep(30 * time.Second)
				s.put(3)
				w.has(t, 3*time.Minute)
				if got := len(s.asked()); got != 13 {
					t.Errorf("%d requests, want one for the kind, and a list and a watch for each of six watches", got)
				}
			})
		})
	}
}

// What happens between a list and its watch may be forgotten before the watch begins.
func TestWaitForListsAgainWhenHistoryIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		lists := 0
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			answer := do()
			if lists++; !req.URL.Query().Has("watch") && lists == 1 {
				s.put(3)
				s.Break("deployments", true)
			}
			return answer, nil
		})
		w := s.begin(t.Context())
		<-w.ended
		if w.err != nil || w.after > time.Second {
			t.Errorf("after %s: %v", w.after, w.err)
		}
		if diff := cmp.Diff([]string{"discover", "list", "watch", "list"}, s.asked()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestWaitForPausesBetweenFailures(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]string{"of lists": "list", "of watches": "watch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
					if req.URL.Query().Has("watch") == (fails == "watch") {
						return fakeserver.Failure(apierrors.NewServiceUnavailable("starting")), nil
					}
					return do(), nil
				})
				w := s.begin(t.Context())
				time.Sleep(2 * time.Minute)
				tries := 0
				for _, request := range s.asked() {
					if request == fails {
						tries++
					}
				}
				if tries < 15 || tries > 25 {
					t.Errorf("%d tries in two minutes", tries)
				}
				s.Hook(nil)
				s.put(3)
				<-w.ended
				if w.err != nil || w.after > 2*time.Minute+10*time.Second {
					t.Errorf("after %s: %v", w.after, w.err)
				}
			})
		})
	}
}

func TestWaitForKindThatIsNotServedYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(3)
		s.serve(false)
		w := s.begin(t.Context())
		time.Sleep(time.Second)
		s.serve(true)
		<-w.ended
		if w.err != nil || w.after > 3*time.Second {
			t.Errorf("after %s: %v", w.after, w.err)
		}
		s.serve(false) // the kind is known, and has gone
		s.put(1)
		_, err := s.wait(t.Context(), client.Within(time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kube.ErrNotServed) {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestWaitForSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*waitServer)
		during  func(*waitServer)
		options []client.Option
		after   time.Duration
		want    string
	}{
		"the default time": {
			prepare: func(s *waitServer) { s.put(2) },
			after:   client.DefaultWaitTimeout,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: InProgress: 2 of 3 replicas are available",
		},
		"another time": {
			options: []client.Option{client.Within(time.Second)},
			after:   time.Second,
			want:    "wait for Deployment shop/web: context deadline exceeded after 1s: it does not exist",
		},
		"deleted meanwhile": {
			prepare: func(s *waitServer) { s.put(2) },
			during:  (*waitServer).delete,
			after:   client.DefaultWaitTimeout,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: it does not exist",
		},
		"never read": {
			prepare: func(s *waitServer) { s.refuse(apierrors.NewServiceUnavailable("starting")) },
			after:   client.DefaultWaitTimeout,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: starting",
		},
		"read at the beginning": {
			prepare: func(s *waitServer) { s.put(2) },
			during: func(s *waitServer) {
				s.refuse(apierrors.NewServiceUnavailable("ending"))
				s.Break("deployments", false)
			},
			after: client.DefaultWaitTimeout,
			want: "wait for Deployment shop/web: context deadline exceeded after 5m0s: " +
				"InProgress: 2 of 3 replicas are available; since then it could not be read: ending",
		},
		"despite failures": {
			prepare: func(s *waitServer) { s.put(2); s.fail() },
			options: []client.Option{client.DespiteFailures()},
			after:   client.DefaultWaitTimeout,
			want: "wait for Deployment shop/web: context deadline exceeded after 5m0s: " +
				"Failed: it has made no progress for too long: ProgressDeadlineExceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				if test.prepare != nil {
					test.prepare(s)
				}
				w := s.begin(t.Context(), test.options...)
				if test.during != nil {
					time.Sleep(time.Minute)
					test.during(s)
				}
				<-w.ended
				if w.err == nil || w.err.Error() != test.want || !errors.Is(w.err, context.DeadlineExceeded) || w.after != test.after {
					t.Errorf("after %s: %v\nwant after %s: %s", w.after, w.err, test.after, test.want)
				}
			})
		})
	}
}

func (s *waitServer) refuse(err *apierrors.StatusError) {
	s.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
		return fakeserver.Failure(err), nil
	})
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		ctx, cancel := context.WithCancel(t.Context())
		w := s.begin(ctx)
		time.Sleep(time.Second)
		cancel()
		<-w.ended
		want := "wait for Deployment shop/web: context canceled after 1s: InProgress: 1 of 3 replicas are available"
		if w.err == nil || w.err.Error() != want || !errors.Is(w.err, context.Canceled) {
			t.Errorf("the error is: %v", w.err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.wait(ctx, client.Within(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestWaitForEndsAtOnceWhereWaitingIsUseless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		w := s.begin(t.Context())
		time.Sleep(time.Second)
		s.fail()
		<-w.ended
		want := "wait for Deployment shop/web: the object has failed: it has made no progress for too long: ProgressDeadlineExceeded"
		if w.err == nil || w.err.Error() != want || !errors.Is(w.err, client.ErrFailed) || w.after != time.Second {
			t.Errorf("after %s: %v", w.after, w.err)
		}

		w = s.begin(t.Context(), client.DespiteFailures())
		time.Sleep(time.Second)
		s.put(3)
		w.has(t, time.Second)

		s.put(1)
		s.refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("no role")))
		w = s.begin(t.Context())
		<-w.ended
		if !apierrors.IsForbidden(w.err) || w.after != 0 {
			t.Errorf("after %s: %v", w.after, w.err)
		}
	})
}

func TestWaitForRefusesMistakesBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	s := newWaitServer(t)
	ctx := t.Context()
	for want, err := range map[string]error{
		"wait for shop/web: the check is nil: readiness.Of is one for all kinds": func() error {
			_, err := client.WaitFor[*appsv1.Deployment](ctx, s.client, webKey(), nil)
			return err
		}(),
		"the key has no name": func() error {
			_, err := client.WaitFor[*appsv1.Deployment](ctx, s.client, kube.Key{Namespace: "shop"}, readiness.Of)
			return err
		}(),
		"option DryRun has no meaning here": func() error { _, err := s.wait(ctx, client.DryRun()); return err }(),
		"the client is nil": func() error {
			_, err := client.WaitFor[*appsv1.Deployment](ctx, nil, webKey(), readiness.Of)
			return err
		}(),
		"wait for a deletion: the object is nil":     client.WaitDeleted(ctx, s.client, (*corev1.Pod)(nil)),
		"wait for a deletion: shop/web has no uid":   client.WaitDeleted(ctx, s.client, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}),
		"option DespiteFailures has no meaning here": client.WaitDeleted(ctx, s.client, database(), client.DespiteFailures()),
		"wait for a deletion: the client is nil":     client.WaitDeleted(ctx, nil, database()),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is: %v\nwant: %s", err, want)
		}
	}
	if asked := s.asked(); len(asked) > 0 {
		t.Errorf("requests: %v", asked)
	}
	_, err := client.WaitFor[*appsv1.Deployment](ctx, s.client, kube.Key{Name: "web"}, readiness.Of)
	if err == nil || !strings.Contains(err.Error(), "has no namespace") {
		t.Errorf("the error is: %v", err)
	}
	if diff := cmp.Diff([]string{"discover"}, s.asked()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestInterceptorsSeeTheRequestsOfWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		var mu sync.Mutex
		var seen []string
		var err error
		s.client, err = s.client.With(func(config *client.Config) {
			config.Interceptors = append(config.Interceptors, func(next client.RoundTrip) client.RoundTrip {
				return func(ctx context.Context, r *client.Request) error {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, fmt.Sprintf("%s %s %s", r.Verb, r.Kind.Kind, r.List.FieldSelector))
					return next(ctx, r)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		w := s.begin(t.Context())
		synctest.Wait()
		s.put(3)
		w.has(t, 0)
		if diff := cmp.Diff([]string{"list Deployment metadata.name=web", "watch Deployment metadata.name=web"}, seen); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestWaitDeleted(t *testing.T) {
	t.Parallel()
	hold := func(s *waitServer) {
		s.Edit("deployments", webKey(), "somebody", func(obj map[string]any) bool {
			(&unstructured.Unstructured{Object: obj}).SetFinalizers([]string{"shop.example.com/disk"})
			return true
		})
	}
	release := func(s *waitServer) {
		s.Edit("deployments", webKey(), "somebody", func(obj map[string]any) bool {
			(&unstructured.Unstructured{Object: obj}).SetFinalizers(nil)
			return true
		})
	}
	for name, test := range map[string]struct {
		before []func(*waitServer)
		during []func(*waitServer) // a second after the begin, and each a second after the other
		after  time.Duration
		want   string // of the error; "": none
	}{
		"gone before": {before: []func(*waitServer){(*waitServer).delete}},
		"deleted":     {during: []func(*waitServer){(*waitServer).delete}, after: time.Second},
		"created again before": {
			before: []func(*waitServer){(*waitServer).delete, func(s *waitServer) { s.put(1) }},
		},
		"created again while no watch was open": {
			during: []func(*waitServer){func(s *waitServer) {
				s.HoldWatches("deployments")
				s.delete()
				s.put(1)
				s.Break("deployments", true)
			}},
			after: time.Second,
		},
		"held, and released": {
			during: []func(*waitServer){hold, (*waitServer).delete, release}, after: 3 * time.Second,
		},
		"held": {
			during: []func(*waitServer){hold, (*waitServer).delete}, after: time.Minute,
			want: "wait for the deletion of Deployment shop/web: context deadline exceeded after 1m0s: " +
				`it is being deleted since 2000-01-01T00:00:02Z, held by finalizers ["shop.example.com/disk"]`,
		},
		"not deleted": {
			after: time.Minute,
			want: "wait for the deletion of Deployment shop/web: context deadline exceeded after 1m0s: " +
				"it is still there (uid uid-1), and nobody has deleted it",
		},
		"of a kind that is not served": {
			before: []func(*waitServer){func(s *waitServer) { s.serve(false) }},
			want:   "wait for the deletion of Deployment shop/web: kind Deployment in apps/v1: kind not served by the cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				s.put(1)
				seen := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "web", UID: s.Object("deployments", webKey()).GetUID(),
				}}
				for _, do := range test.before {
					do(s)
				}
				var err error
				var after time.Duration
				ended, began := make(chan struct{}), time.Now()
				go func() { // waited for below
					defer close(ended)
					err = client.WaitDeleted(t.Context(), s.client, seen, client.Within(time.Minute))
					after = time.Since(began)
				}()
				for _, do := range test.during {
					time.Sleep(time.Second)
					do(s)
				}
				<-ended
				switch {
				case after < test.after || after > test.after+250*time.Millisecond: // a pause
					t.Errorf("after %s, want %s: %v", after, test.after, err)
				case test.want == "" && err != nil:
					t.Error(err)
				case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)):
					t.Errorf("the error is: %v\nwant: %s", err, test.want)
				}
			})
		})
	}
}

// An installer that creates a Deployment and goes on when it is rolled out.
func ExampleWaitFor() {
	server := fakeserver.New(fakeserver.Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments"})
	cluster, err := kube.Connect(server.Config("installer"))
	if err != nil {
		panic(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		panic(err)
	}
	key := kube.Key{Namespace: "shop", Name: "web"}
	rollOut := func() {
		server.Edit("deployments", key, "controller", func(obj map[string]any) bool {
			obj["spec"] = map[string]any{"replicas": int64(2)}
			obj["status"] = map[string]any{
				"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2), "availableReplicas": int64(2),
			}
			return true
		})
	}
	ended := make(chan struct{})
	go func() { // waited for at the end
		defer close(ended)
		rollOut()
	}()

	deployment, err := client.WaitFor[*appsv1.Deployment](context.Background(), c, key, readiness.RolledOut, client.Within(time.Minute))
	fmt.Println(deployment.Status.AvailableReplicas, "replicas are available:", err)

	<-ended
	_, err = client.WaitFor[*appsv1.Deployment](context.Background(), c, key, readiness.JobDone)
	fmt.Println(err)
	// Output:
	// 2 replicas are available: <nil>
	// wait for Deployment shop/web: the object has failed: a Deployment cannot be done
}
