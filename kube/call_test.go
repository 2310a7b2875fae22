package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func configMaps() *apiserver.Kind {
	return apiserver.ConfigMaps()
}

func connectTo(t *testing.T, config *rest.Config) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// observer records the calls that are reported to it.
type observer struct {
	mu    sync.Mutex
	began int
	calls []kube.Call
}

type markKey struct{}

func (o *observer) CallBegan(ctx context.Context, _ kube.Call) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began++
	return context.WithValue(ctx, markKey{}, o.began)
}

func (o *observer) CallEnded(ctx context.Context, call kube.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Value(markKey{}) == nil {
		call.Err = errors.New("the context is not the one that CallBegan returned")
	}
	o.calls = append(o.calls, call)
}

func (o *observer) last() kube.Call { return o.calls[len(o.calls)-1] }

// TestCallsOfAnyClientAreObserved makes requests with client-go's dynamic client, created from the cluster's HTTP
// client and from its config, and checks the reported calls.
func TestCallsOfAnyClientAreObserved(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	cluster := connectTo(t, server.Config("test"))
	if _, err := cluster.Resource(t.Context(), configMaps().GroupVersionKind); err != nil {
		t.Fatal(err)
	}
	byClient, err := dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	byConfig, err := dynamic.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for name, client := range map[string]dynamic.Interface{"client": byClient, "config": byConfig} {
		t.Run(name, func(t *testing.T) {
			o := &observer{}
			ctx := kube.ObserveCalls(t.Context(), o)
			objects := client.Resource(resource).Namespace("ns")
			server.Edit("configmaps", kube.Key{Namespace: "ns", Name: name}, "other", func(map[string]any) bool { return true })
			steps := []struct {
				want string
				do   func() error
			}{
				{"get configmaps ConfigMap ns/" + name + " 200 false", func() error {
					_, err := objects.Get(ctx, name, metav1.GetOptions{})
					return err
				}},
				{"list configmaps ConfigMap ns/ 200 false", func() error { _, err := objects.List(ctx, metav1.ListOptions{}); return err }},
				{"patch configmaps ConfigMap ns/" + name + " 200 true", func() error {
					_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
					return err
				}},
				{"patch configmaps ConfigMap ns/" + name + " 200 false", func() error {
					_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"c"}}`), metav1.PatchOptions{DryRun: []string{"All"}})
					return err
				}},
				{"delete configmaps ConfigMap ns/" + name + " 200 false", func() error {
					return objects.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{"All"}})
				}},
				{"delete configmaps ConfigMap ns/" + name + " 200 true", func() error { return objects.Delete(ctx, name, metav1.DeleteOptions{}) }},
			}
			for _, step := range steps {
				if err := step.do(); err != nil {
					t.Fatalf("%s: %v", step.want, err)
				}
				c := o.last()
				got := fmt.Sprintf("%s %s %s %s/%s %d %v", c.Verb, c.Resource.Resource, c.Kind.Kind, c.Key.Namespace, c.Key.Name, c.Status, c.IsWrite())
				if got != step.want || c.Err != nil {
					t.Errorf("call %q, error %v, want %q", got, c.Err, step.want)
				}
				if hasResponse := len(c.Response) > 0; hasResponse != c.IsWrite() {
					t.Errorf("%s: has a response: %v", got, hasResponse)
				}
			}
			if o.began != len(steps) || len(o.calls) != len(steps) {
				t.Errorf("%d calls began and %d ended, want %d", o.began, len(o.calls), len(steps))
			}
		})
	}
}

func TestObserversOfNestedContextsReceiveAllCalls(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	cluster := connectTo(t, server.Config("test"))
	outer, inner := &observer{}, &observer{}
	ctx := kube.ObserveCalls(kube.ObserveCalls(t.Context(), outer), inner)
	client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get().Resource("configmaps").Do(ctx).Into(&corev1.ConfigMapList{}); err != nil {
		t.Fatal(err)
	}
	if len(outer.calls) != 1 || len(inner.calls) != 1 {
		t.Errorf("the outer observer received %d calls and the inner one %d, want 1 and 1", len(outer.calls), len(inner.calls))
	}
}

// TestCallWithLostResponse: the server carries out the request, and the response is lost.
func TestCallWithLostResponse(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	lost := errors.New("connection reset")
	server.Hook(func(_ *http.Request, do func() *http.Response) (*http.Response, error) {
		do()
		return nil, lost
	})
	o := &observer{}
	client, err := connectTo(t, server.Config("test")).RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Post().Namespace("ns").Resource("configmaps").Body(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}}).
		Do(kube.ObserveCalls(t.Context(), o)).Error()
	if !errors.Is(err, lost) {
		t.Fatalf("error %v, want the one of the connection", err)
	}
	if c := o.last(); c.Succeeded() || !errors.Is(c.Err, lost) || c.Status != 0 {
		t.Errorf("the call succeeded: %v, error %v, status %d", c.Succeeded(), c.Err, c.Status)
	}
	if !slices.Equal(server.Keys("configmaps"), []string{"ns/a"}) {
		t.Errorf("the server has %v, want the write to be done", server.Keys("configmaps"))
	}
}

// TestContract06_NoWriteAfterLeadershipIsLost: reads continue, writes are not sent.
func TestContract06_NoWriteAfterLeadershipIsLost(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	client, err := connectTo(t, server.Config("test")).RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	held := leadership.New(nil, time.Hour)
	leading, cancel := leadership.With(t.Context(), held)
	defer cancel()
	ctx := context.WithoutCancel(leading)
	write := func(name string) error {
		return client.Post().Namespace("ns").Resource("configmaps").Body(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(ctx).Error()
	}
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	held.Lose(errors.New("another process leads"))
	err = write("after")
	if !errors.Is(err, kube.ErrLeadershipLost) || !strings.Contains(err.Error(), "not sent") {
		t.Errorf("a write after the loss: %v, want %v", err, kube.ErrLeadershipLost)
	}
	if class := retry.Classify(err); class != retry.Default {
		t.Errorf("its class is %s: the connection has not failed, so a retry is useless", class)
	}
	if err := client.Get().Resource("configmaps").Do(ctx).Into(&corev1.ConfigMapList{}); err != nil {
		t.Errorf("a read after the loss: %v", err)
	}
	if keys := server.Keys("configmaps"); !slices.Equal(keys, []string{"ns/before"}) {
		t.Errorf("the server has %v", keys)
	}
}

// The API server's URL may have a path.
func TestCallThroughProxy(t *testing.T) {
	t.Parallel()
	var paths []string
	config := &rest.Config{Host: "http://proxy/k8s/clusters/c-1", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		paths = append(paths, r.URL.Path)
		return nil, errors.New("nobody there")
	})}
	o := &observer{}
	client, err := connectTo(t, config).RESTClient(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Put().Namespace("ns").Resource("deployments").Name("web").SubResource("status").Do(kube.ObserveCalls(t.Context(), o)).Error()
	c := o.last()
	if c.Verb != "update" || c.Resource.Group != "apps" || c.Resource.Resource != "deployments" || c.Subresource != "status" || c.Key != (kube.Key{Namespace: "ns", Name: "web"}) {
		t.Errorf("the call of %v is %+v", paths, c)
	}
}

// A Cluster may be created from another Cluster's config, for example to impersonate a user.
func TestCallThroughTwoClustersIsObservedOnce(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	first := connectTo(t, server.Config("test"))
	client, err := connectTo(t, first.RESTConfig()).RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{}
	if err := client.Get().Resource("configmaps").Do(kube.ObserveCalls(t.Context(), o)).Into(&corev1.ConfigMapList{}); err != nil {
		t.Fatal(err)
	}
	if o.began != 1 || len(o.calls) != 1 {
		t.Errorf("%d calls began and %d ended, want one", o.began, len(o.calls))
	}
}

// connection is the body of a response that is a connection: it returns the bytes that are written to it.
type connection struct{ *io.PipeReader }

func (connection) Write(p []byte) (int, error) { return len(p), nil }

// The end of an endless response must not be awaited, and the body of a connection must keep its type.
func TestUpgradedConnectionsAreUnchanged(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{
		"/api/v1/namespaces/ns/pods/p/exec":          http.StatusSwitchingProtocols,
		"/api/v1/namespaces/ns/pods/p/portforward":   http.StatusSwitchingProtocols,
		"/api/v1/namespaces/ns/pods/p/proxy/events":  http.StatusOK,
		"/api/v1/namespaces/ns/services/s/proxy":     http.StatusOK,
		"/apis/example.com/v1/namespaces/ns/as/a/up": http.StatusSwitchingProtocols, // of an aggregated API
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			reader, writer := io.Pipe()
			t.Cleanup(func() { _ = writer.Close() })
			cluster := connectTo(t, &rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: connection{reader}}, nil
			})})
			o := &observer{}
			req, err := http.NewRequestWithContext(kube.ObserveCalls(t.Context(), o), http.MethodPost, "http://server"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := cluster.HTTPClient().Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, ok := resp.Body.(io.ReadWriteCloser); !ok {
				t.Errorf("the response's body is a %T, which is not a writer", resp.Body)
			}
			if c := o.last(); !c.Succeeded() || c.Verb != "create" || c.Response != nil {
				t.Errorf("the call is %+v", c)
			}
		})
	}
}

// A user's transport panics, possibly after sending a request. The request must fail, also for its observers, and the
// stack must be logged once.
//
//nolint:paralleltest // it replaces the default logger
func TestContract08_PanicOfTransportFailsRequest(t *testing.T) {
	var logged testlog.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	transport := func(fail func()) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) { fail(); return nil, nil })
	}
	dial := func(fail func()) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) { fail(); return nil, nil }
	}
	wrap := func(fail func()) func(http.RoundTripper) http.RoundTripper {
		return func(http.RoundTripper) http.RoundTripper { return transport(fail) }
	}
	panics := func() { panic("no credentials") }
	const panicked, exited = "panicked: no credentials", "it called runtime.Goexit"
	for name, test := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"transport":           {&rest.Config{Host: "http://server", Transport: transport(panics)}, "the transport " + panicked},
		"wrapper":             {&rest.Config{Host: "http://server", WrapTransport: wrap(panics)}, "the transport " + panicked},
		"Dial":                {&rest.Config{Host: "http://server", Dial: dial(panics)}, panicked},
		"Goexit in transport": {&rest.Config{Host: "http://server", Transport: transport(runtime.Goexit)}, "the transport: " + exited},
		"Goexit in wrapper":   {&rest.Config{Host: "http://server", WrapTransport: wrap(runtime.Goexit)}, "the transport: " + exited},
		"Goexit in Dial":      {&rest.Config{Host: "http://server", Dial: dial(runtime.Goexit)}, exited},
	} {
		config := test.config
		logged.Reset()
		cluster := connectTo(t, config)
		_, leading := lead(t)
		for _, ctx := range []context.Context{t.Context(), leading} {
			for _, method := range []string{http.MethodGet, http.MethodPut} {
				seen := &observer{}
				for _, ctx := range []context.Context{ctx, kube.ObserveCalls(ctx, seen)} {
					req, err := http.NewRequestWithContext(ctx, method, "http://server/api/v1/namespaces/ns/configmaps/c", strings.NewReader("{}"))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := send(cluster.HTTPClient(), req); err == nil || !strings.Contains(err.Error(), test.want) {
						t.Errorf("%s, %s: %v, want %q in the error", name, method, err, test.want)
					}
				}
				if len(seen.calls) != 1 || seen.calls[0].Err == nil || seen.calls[0].Succeeded() {
					t.Errorf("%s, %s: the observer has seen %+v, want one call with an error", name, method, seen.calls)
				}
			}
		}
		if text := logged.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "call_test.go") {
			t.Errorf("%s: logged:\n%s\nwant one stack", name, text)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCallNamesTheFieldManager compares Call.Manager with managedFields of the response: the API server in memory has a
// copy of the rule.
func TestCallNamesTheFieldManager(t *testing.T) {
	t.Parallel()
	server := apitest.New(configMaps())
	for _, test := range []struct{ userAgent, parameter, want string }{
		{"shop/v1 (linux)", "", "shop"},
		{"shop/v1 (linux)", "other", "other"},
		{"a\tb/c", "", "ab"},
		{strings.Repeat("é", 100), "", strings.Repeat("é", 64)},
	} {
		config := server.Config("test")
		config.UserAgent = test.userAgent
		cluster := connectTo(t, config)
		client, err := dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
		if err != nil {
			t.Fatal(err)
		}
		o := &observer{}
		ctx := kube.ObserveCalls(t.Context(), o)
		maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("ns")
		m := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"by": test.want}}}
		created, err := maps.Create(ctx, m, metav1.CreateOptions{FieldManager: test.parameter})
		if err != nil {
			t.Fatal(err)
		}
		patched, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{FieldManager: test.parameter})
		if err != nil {
			t.Fatal(err)
		}
		for i, response := range []*unstructured.Unstructured{created, patched} {
			if got := o.calls[i].Manager; got != test.want || response.GetManagedFields()[0].Manager != got {
				t.Errorf("the manager of %s with %+v is %q, and managedFields are %v", o.calls[i].Verb, test, got, response.GetManagedFields())
			}
		}
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil || o.last().Manager != "" {
			t.Errorf("a delete has the manager %q, %v", o.last().Manager, err)
		}
	}
}
