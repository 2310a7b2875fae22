package crd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/kube"
)

// transport is an API server in memory with definitions and Websites. If answer returns nil, the server handles
// the request.
type transport struct {
	*apitest.Server
	began  time.Time
	answer func(req *http.Request) *http.Response
}

// RoundTrip implements http.RoundTripper.
func (s *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.answer != nil {
		if resp := s.answer(req); resp != nil {
			return resp, nil
		}
	}
	return s.Server.RoundTrip(req)
}

func newTransport(t *testing.T) (*transport, *client.Client, *logLines) {
	t.Helper()
	server := &transport{began: time.Now(), Server: apitest.New(
		apitest.ClusterScoped(apitest.WithStatus(apiserver.Custom(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "customresourcedefinitions"))),
		apiserver.Custom(schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Website"}, "websites"),
	)}
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.test", Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	logged := &logLines{began: time.Now()}
	cluster.SetLogger(slog.New(logged))
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	return server, c, logged
}

// install creates an established definition.
func install(t *testing.T, c *client.Client, change func(*apiextensionsv1.CustomResourceDefinition)) {
	t.Helper()
	d := definition(t, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Status.AcceptedNames = d.Spec.Names
		d.Status.StoredVersions = []string{"v1"}
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: "NamesAccepted", Status: "True"}, {Type: "Established", Status: "True"},
		}
		if change != nil {
			change(d)
		}
	}, crdtest.Version{Name: "v1"})
	applied, err := client.Apply(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	created := applied.Object
	created.Status = d.Status
	if _, err := client.Update(t.Context(), c, created, client.Subresource("status")); err != nil {
		t.Fatal(err)
	}
}

const website = "websites.shop.example.com"

func TestWaitEstablishedLogsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c, logged := newTransport(t)
		began := time.Now()
		err := crd.WaitEstablished(t.Context(), c, website)
		if elapsed := time.Since(began); elapsed != time.Minute || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("after %s the error is %v, want the deadline after %s", elapsed, err, time.Minute)
		}
		if diff := cmp.Diff([]string{"2s", "12s", "22s", "32s", "42s", "52s"}, logged.times()); diff != "" {
			t.Errorf("log lines (-want +got):\n%s", diff)
		}
	})
}

func TestShortWaitIsNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c, logged := newTransport(t)
		var running sync.WaitGroup
		running.Go(func() { // waited for below
			time.Sleep(1900 * time.Millisecond)
			install(t, c, nil)
		})
		began := time.Now()
		err := crd.WaitEstablished(t.Context(), c, website)
		if elapsed := time.Since(began); elapsed > 1900*time.Millisecond || err != nil {
			t.Errorf("after %s the error is %v", elapsed, err)
		}
		running.Wait()
		if got := logged.times(); len(got) > 0 {
			t.Errorf("the log is %q", logged.text)
		}
	})
}

func TestWaitEstablishedRetriesTransientDiscoveryErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func() *http.Response
		wantOK bool
		logged string
	}{
		"not found":   {func() *http.Response { return apitest.Failure(apierrors.NewNotFound(schema.GroupResource{}, "")) }, true, "version v1 is not served yet"},
		"unavailable": {func() *http.Response { return apitest.Failure(apierrors.NewServiceUnavailable("later")) }, true, "later"},
		"forbidden": {func() *http.Response {
			return apitest.Failure(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		}, false, ""},
		"stale scope": {nil, false, "version v1 is still served with its old names or scope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, c, logged := newTransport(t)
				install(t, c, func(d *apiextensionsv1.CustomResourceDefinition) {
					if test.answer == nil {
						d.Spec.Scope = apiextensionsv1.ClusterScoped
					}
				})
				// Fill the discovery cache: WaitEstablished must not trust it.
				kind := schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Website"}
				if _, err := c.Cluster().Resource(t.Context(), kind); err != nil {
					t.Fatal(err)
				}
				server.answer = func(req *http.Request) *http.Response {
					if test.answer != nil && req.URL.Path == "/apis/shop.example.com/v1" && time.Since(server.began) < 5*time.Second {
						return test.answer()
					}
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := crd.WaitEstablished(ctx, c, website)
				elapsed := time.Since(server.began)
				if test.wantOK != (err == nil) || test.wantOK && (elapsed < 5*time.Second || elapsed > 5100*time.Millisecond) {
					t.Errorf("after %s the error is %v", elapsed, err)
				}
				if test.logged != "" && !strings.Contains(strings.Join(logged.text, "\n"), test.logged) {
					t.Errorf("the log %q lacks %q", logged.text, test.logged)
				}
			})
		})
	}
}

// Since 1.35 conditions have an observedGeneration.
func TestConditionsOfOldGenerationIgnored(t *testing.T) {
	t.Parallel()
	for name, condition := range map[string]apiextensionsv1.CustomResourceDefinitionCondition{
		"accepted": {Type: "NamesAccepted", Status: "True"},
		"refused":  {Type: "NamesAccepted", Status: "False", Message: `"web" is already in use`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, c, _ := newTransport(t)
				install(t, c, func(d *apiextensionsv1.CustomResourceDefinition) {
					condition.ObservedGeneration = 1
					d.Status.Conditions[0] = condition
				})
				edit := func(change func(obj map[string]any)) {
					server.Edit("customresourcedefinitions", kube.Key{Name: website}, "other-client", func(obj map[string]any) bool { change(obj); return true })
				}
				edit(func(obj map[string]any) { obj["spec"].(map[string]any)["preserveUnknownFields"] = false }) // generation 2
				var running sync.WaitGroup
				running.Go(func() { // waited for below
					time.Sleep(30 * time.Second)
					edit(func(obj map[string]any) {
						first := obj["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
						first["status"], first["observedGeneration"] = "True", int64(2)
					})
				})
				began := time.Now()
				err := crd.WaitEstablished(t.Context(), c, website)
				if elapsed := time.Since(began); err != nil || elapsed < 30*time.Second {
					t.Errorf("after %s the error is %v, want none after 30 s", elapsed, err)
				}
				running.Wait()
			})
		})
	}
}

// A refusal of names stays in the status until the API server has checked the new names, and forever if it
// refuses these too.
func TestOldRejectionOfNamesIgnoredAfterChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		acceptedAfter time.Duration // 0: never
		earliest      time.Duration
		latest        time.Duration
	}{
		"new names accepted": {3 * time.Second, 3 * time.Second, 4 * time.Second},
		"new names refused":  {0, 15 * time.Second, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, c, _ := newTransport(t)
				const resource = "customresourcedefinitions"
				key := kube.Key{Name: website}
				install(t, c, func(d *apiextensionsv1.CustomResourceDefinition) {
					d.Spec.Names.ShortNames = []string{"taken"}
					d.Status.Conditions[0] = apiextensionsv1.CustomResourceDefinitionCondition{Type: "NamesAccepted", Status: "False", Message: `"taken" is already in use`}
				})
				var running sync.WaitGroup
				if test.acceptedAfter > 0 {
					running.Go(func() { // waited for below
						time.Sleep(test.acceptedAfter)
						server.Edit(resource, key, "status", func(obj map[string]any) bool {
							obj["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)["status"] = "True"
							return true
						})
					})
				}
				began := time.Now()
				_, err := crd.Ensure(t.Context(), c, []*apiextensionsv1.CustomResourceDefinition{definition(t, nil, crdtest.Version{Name: "v1"})})
				elapsed := time.Since(began)
				if (err == nil) != (test.acceptedAfter > 0) || elapsed < test.earliest || elapsed > test.latest {
					t.Errorf("after %s the error is %v, want it between %s and %s", elapsed, err, test.earliest, test.latest)
				}
				running.Wait()
			})
		})
	}
}

// Objects with finalizers block the deletion of their definition: the error and the log must name one.
func TestWaitNamesObjectsThatBlockDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c, logged := newTransport(t)
		install(t, c, func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Finalizers = []string{"customresourcecleanup.apiextensions.k8s.io"}
		})
		held := &unstructured.Unstructured{}
		held.SetGroupVersionKind(schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Website"})
		held.SetNamespace("ns")
		held.SetName("held")
		held.SetFinalizers([]string{"example.com/hold"})
		if _, err := client.Create(t.Context(), c, held); err != nil {
			t.Fatal(err)
		}
		ensure := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := crd.Ensure(ctx, c, []*apiextensionsv1.CustomResourceDefinition{definition(t, nil, crdtest.Version{Name: "v1"})})
			return err
		}
		remove := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			return crd.RemoveWithObjects(ctx, c, website)
		}
		for i, wait := range []func() error{remove, ensure, remove} { // the first call starts the deletion
			began, lines := time.Now(), len(logged.times())
			err := wait()
			if elapsed := time.Since(began); elapsed != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "1 of 1 held by finalizers: ns/held by example.com/hold") {
				t.Errorf("%d: after %s the error is %v", i, elapsed, err)
			}
			if added := logged.text[lines:]; len(added) != 1 || !strings.Contains(added[0], "example.com/hold") {
				t.Errorf("%d: the log is %q", i, added)
			}
		}
	})
}

// In a task of package manager, Ensure waits for a deletion without the timeout, also for one that begins during the
// call, and creates the definition again.
func TestEnsureInTaskWaitsForDeletionDuringCall(t *testing.T) {
	t.Parallel()
	const resource = "customresourcedefinitions"
	for name, begins := range map[string]func(req *http.Request) bool{
		"before the write":          func(req *http.Request) bool { return req.Method == http.MethodPatch },
		"before the kind is served": func(req *http.Request) bool { return req.URL.Path == "/apis/shop.example.com/v1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, c, _ := newTransport(t)
				install(t, c, nil)
				server.Edit(resource, kube.Key{Name: website}, "other", func(obj map[string]any) bool {
					obj["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
					return true
				})
				var deleted atomic.Bool
				server.answer = func(req *http.Request) *http.Response {
					if begins(req) && deleted.CompareAndSwap(false, true) {
						server.Edit(resource, kube.Key{Name: website}, "other", func(map[string]any) bool { return false })
					}
					if deleted.Load() && req.URL.Path == "/apis/shop.example.com/v1" && time.Since(server.began) < 5*time.Minute {
						return apitest.Failure(apierrors.NewNotFound(schema.GroupResource{}, ""))
					}
					return nil
				}
				changed := definition(t, func(d *apiextensionsv1.CustomResourceDefinition) { d.Labels = map[string]string{"a": "b"} }, crdtest.Version{Name: "v1"})
				var running sync.WaitGroup
				running.Go(func() { // waited for below
					time.Sleep(5 * time.Minute)
					server.Edit(resource, kube.Key{Name: website}, "other", func(obj map[string]any) bool {
						delete(obj["metadata"].(map[string]any), "finalizers")
						return true
					})
					time.Sleep(30 * time.Second) // the definition exists again
					server.Edit(resource, kube.Key{Name: website}, "apiserver", func(obj map[string]any) bool {
						obj["status"] = map[string]any{
							"acceptedNames": obj["spec"].(map[string]any)["names"],
							"conditions":    []any{map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"}},
						}
						return true
					})
				})
				_, err := crd.Ensure(observers.WithStart(t.Context(), func(string) {}), c, []*apiextensionsv1.CustomResourceDefinition{changed})
				if elapsed := time.Since(server.began); err != nil || elapsed < 5*time.Minute {
					t.Errorf("after %s the error is %v", elapsed, err)
				}
				running.Wait()
			})
		})
	}
}

// logLines implements slog.Handler.
type logLines struct {
	began time.Time

	mu    sync.Mutex
	after []string // guarded by mu
	text  []string // guarded by mu
}

func (l *logLines) times() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.after
}

// Handle implements slog.Handler.
func (l *logLines) Handle(_ context.Context, record slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := record.Message
	record.Attrs(func(a slog.Attr) bool { text += fmt.Sprint(" ", a); return true })
	l.after = append(l.after, fmt.Sprint(time.Since(l.began)))
	l.text = append(l.text, text)
	return nil
}

// Enabled implements slog.Handler.
func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *logLines) WithGroup(string) slog.Handler { return l }
