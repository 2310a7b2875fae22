package client_test

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

func TestWaitForReadyObjectMakesOneRequest(t *testing.T) {
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

// The server ends a watch after 30 to 60 minutes.
func TestWaitForWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		w := s.begin(t.Context(), client.Timeout(-1))
		time.Sleep(9 * time.Minute)
		s.Edit("deployments", kube.Key{Namespace: "shop", Name: "other"}, "somebody", func(map[string]any) bool { return true })
		s.put(1)
		s.put(2)
		time.Sleep(9 * time.Minute)
		s.delete()
		s.put(2)
		time.Sleep(9 * time.Minute)
		s.put(3)
		w.has(t, 27*time.Minute)
		if w.obj.Kind != "Deployment" {
			t.Errorf("the object's kind is %q", w.obj.Kind)
		}
		if diff := cmp.Diff([]string{"discover", "list", "watch"}, s.asked()); diff != "" {
			t.Errorf("requests in 27 minutes (-want +got):\n%s", diff)
		}
	})
}

func TestWaitForReopensWatches(t *testing.T) {
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
				s.HoldWatches("deployments")
				s.put(3)
				s.Break("deployments", history)
				w.has(t, 3*time.Minute) // without a pause, because the watch was long
				if got := len(s.asked()); got != 14 {
					t.Errorf("%d requests, want one for the kind, a list and a watch for each of six watches, and the last list", got)
				}
			})
		})
	}
}

// The API server may drop the version of a list before the watch begins.
func TestWaitForListsAgainAfterExpiredVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		lists := 0
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			response := do()
			if lists++; !req.URL.Query().Has("watch") && lists == 1 {
				s.put(3)
				s.Break("deployments", true)
			}
			return response, nil
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
						return apitest.Failure(apierrors.NewServiceUnavailable("starting")), nil
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

func TestWaitForRespectsRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.refuse(apierrors.NewTooManyRequests("slower", 30))
		_, err := s.wait(t.Context(), client.Timeout(time.Minute+time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !apierrors.IsTooManyRequests(err) {
			t.Errorf("the error is: %v", err)
		}
		if diff := cmp.Diff([]string{"discover", "list", "list", "list"}, s.asked()); diff != "" {
			t.Errorf("requests in a minute (-want +got):\n%s", diff)
		}
	})
}

// staleInformer shows an old state of the Deployment: rolled out.
type staleInformer struct{ cache.Informer }

func (staleInformer) ReadsFrom(string) bool { return true }

func (staleInformer) Name() string { return "stale" }
func (staleInformer) Kind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("Deployment")
}
func (staleInformer) NewObject() (kube.Object, bool)      { return &appsv1.Deployment{}, true }
func (staleInformer) Covers(string, labels.Selector) bool { return true }
func (s staleInformer) Metadata() cache.Reader            { return s }

func (staleInformer) Object(key kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0))},
	}, nil, true, nil
}

func TestWaitForReadsFromAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(2)
		var err error
		s.client, err = s.client.With(func(config *client.Config) { config.Informers = shows(staleInformer{}) })
		if err != nil {
			t.Fatal(err)
		}
		if cached, err := client.Get[*appsv1.Deployment](t.Context(), s.client, webKey()); err != nil || !readiness.Of(cached).Ready() {
			t.Fatalf("the informer does not answer: %v, %v", cached, err)
		}
		w := s.begin(t.Context())
		time.Sleep(time.Second)
		s.put(3)
		w.has(t, time.Second)
	})
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
		s.serve(false) // the kind was found, and is not served anymore
		s.put(1)
		_, err := s.wait(t.Context(), client.Timeout(time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kube.ErrNotServed) {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestWaitForErrorNamesMissingState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*waitServer)
		during  func(*waitServer)
		options []client.WaitOption
		after   time.Duration
		want    string
	}{
		"the default time": {
			prepare: func(s *waitServer) { s.put(2) },
			after:   5 * time.Minute,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: InProgress: 2 of 3 replicas are available",
		},
		"another time": {
			options: []client.WaitOption{client.Timeout(time.Second)},
			after:   time.Second,
			want:    "wait for Deployment shop/web: context deadline exceeded after 1s: it does not exist",
		},
		"deleted meanwhile": {
			prepare: func(s *waitServer) { s.put(2) },
			during:  (*waitServer).delete,
			after:   5 * time.Minute,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: it does not exist",
		},
		"never read": {
			prepare: func(s *waitServer) { s.refuse(apierrors.NewServiceUnavailable("starting")) },
			after:   5 * time.Minute,
			want:    "wait for Deployment shop/web: context deadline exceeded after 5m0s: starting",
		},
		"read at the beginning": {
			prepare: func(s *waitServer) { s.put(2) },
			during: func(s *waitServer) {
				s.refuse(apierrors.NewServiceUnavailable("ending"))
				s.Break("deployments", false)
			},
			after: 5 * time.Minute,
			want: "wait for Deployment shop/web: context deadline exceeded after 5m0s: " +
				"InProgress: 2 of 3 replicas are available; since then it could not be read: ending",
		},
		"read again": {
			prepare: func(s *waitServer) { s.put(2) },
			during: func(s *waitServer) {
				s.refuse(apierrors.NewServiceUnavailable("ending"))
				s.Break("deployments", false)
				time.Sleep(time.Minute)
				s.Hook(nil)
			},
			after: 5 * time.Minute,
			want:  "wait for Deployment shop/web: context deadline exceeded after 5m0s: InProgress: 2 of 3 replicas are available",
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
		return apitest.Failure(err), nil
	})
}

func TestWaitForEndsWithContext(t *testing.T) {
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
		if _, err := s.wait(ctx, client.Timeout(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestWaitForFailsFastOnPermanentErrors(t *testing.T) {
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

		s.put(1)
		s.refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("no role")))
		w = s.begin(t.Context())
		<-w.ended
		if !apierrors.IsForbidden(w.err) || w.after != 0 {
			t.Errorf("after %s: %v", w.after, w.err)
		}
	})
}

func TestWaitForRejectsInvalidArguments(t *testing.T) {
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
		"the client is nil": func() error {
			_, err := client.WaitFor[*appsv1.Deployment](ctx, nil, webKey(), readiness.Of)
			return err
		}(),
		"wait for a deletion: the object is nil":      client.WaitDeleted(ctx, s.client, (*corev1.Pod)(nil)),
		"wait for a deletion: the object has no name": client.WaitDeleted(ctx, s.client, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "1"}}),
		"wait for a deletion: shop/web has no uid":    client.WaitDeleted(ctx, s.client, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}),
		"wait for a deletion: the client is nil":      client.WaitDeleted(ctx, nil, database()),
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

// TestWaitForIgnoresOtherObjects: a server that ignores the selector, such as some aggregated API servers, may send
// other objects.
func TestWaitForIgnoresOtherObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			query := req.URL.Query()
			query.Del("fieldSelector")
			req.URL.RawQuery = query.Encode()
			return do(), nil
		})
		another := func(name string) {
			s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "controller", func(obj map[string]any) bool {
				obj["spec"] = map[string]any{"replicas": int64(3)}
				obj["status"] = map[string]any{
					"observedGeneration": int64(1), "replicas": int64(3), "updatedReplicas": int64(3), "availableReplicas": int64(3),
				}
				return true
			})
		}
		another("before")
		w := s.begin(t.Context(), client.Timeout(time.Minute))
		time.Sleep(time.Second)
		another("other")
		time.Sleep(time.Second)
		s.put(3)
		w.has(t, 2*time.Second)
		if w.obj.Name != "web" {
			t.Errorf("waited for %s", w.obj.Name)
		}
	})
}
