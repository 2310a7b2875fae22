package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestNewReportsAllConfigErrors(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{
		FieldOwner: strings.Repeat("x", 129), FieldValidation: "strict", Namespace: "Shop",
		Informers: append([]client.Informer{nil}, shows(shelf{})...), Interceptors: []client.Interceptor{nil},
	})
	for _, want := range []string{
		"make a client: ", "Cluster is required", "FieldOwner has 129 bytes", `FieldValidation is "strict"`, `the Namespace "Shop" is invalid: `,
		"nil is among Informers, at 0", `informer "shelf" does not know the kind`, "nil is among Interceptors, at 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// TestInterceptorsSeeEveryRequest: interceptors are called in their order. They may change the request before it is
// sent, and read the response after it.
func TestInterceptorsSeeEveryRequest(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = echo
	var seen []string
	note := func(name string) client.Interceptor {
		return func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				seen = append(seen, name+" before "+string(r.Verb))
				err := next(ctx, r)
				seen = append(seen, fmt.Sprint(name, " after ", r.Status))
				return err
			}
		}
	}
	errRefused := errors.New("nothing is deleted here")
	refuse := func(client.RoundTrip) client.RoundTrip {
		return func(context.Context, *client.Request) error { return errRefused }
	}
	responses := func(client.RoundTrip) client.RoundTrip {
		return func(_ context.Context, r *client.Request) error {
			r.Response.(*corev1.Node).Name = "made up"
			return nil
		}
	}
	changes := func(next client.RoundTrip) client.RoundTrip {
		return func(ctx context.Context, r *client.Request) error {
			r.FieldOwner = "another"
			r.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "in its place"}}
			return next(ctx, r)
		}
	}
	c = with(t, c, func(config *client.Config) {
		config.Interceptors = []client.Interceptor{
			note("first"), client.On(note("second"), client.VerbGet), client.On(refuse, client.VerbDelete, client.VerbDeleteCollection),
			client.On(responses, client.VerbGet), client.On(changes, client.VerbUpdate),
		}
	})
	got, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"})
	if err != nil || got.Name != "made up" || got.Kind != "Node" {
		t.Errorf("the response of an interceptor is %+v, %v", got, err)
	}
	if err := client.Delete(t.Context(), c, node()); !errors.Is(err, errRefused) || retry.Classify(err) != retry.Default {
		t.Errorf("the error is %v, want the interceptor's", err)
	}
	if _, err := client.Update(t.Context(), c, node()); err != nil {
		t.Error(err)
	}
	want := []string{
		"first before get", "second before get", "second after 0", "first after 0", "first before delete", "first after 0",
		"first before update", "first after 200",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("seen was %q, want %q", seen, want)
	}
	if log := server.log(); len(log) != 1 || !strings.HasPrefix(log[0], `PUT /api/v1/nodes/n1?fieldManager=another {"kind":"Node","apiVersion":"v1","metadata":{"name":"in its place"}`) {
		t.Errorf("the requests are %q", log)
	}
}

func TestRecordingStoresRequests(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		return r.Method != http.MethodGet && r.Method != http.MethodDelete && echo(w, r, body)
	}
	var recording requestlog.Recording
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
	changed := node()
	changed.Labels = map[string]string{"a": "b"}
	_, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"})
	_, gone := client.Get[*corev1.Pod](t.Context(), c, kube.Key{Namespace: "shop", Name: "none"})
	_, err2 := client.Patch(t.Context(), c, node(), client.MergeFrom(node(), changed))
	_, err3 := client.Update(t.Context(), c, database(), client.Subresource("status"), client.DryRun())
	named := func(client.RoundTrip) client.RoundTrip {
		return func(_ context.Context, r *client.Request) error {
			r.Response.(*corev1.Pod).Name = r.Object.GetGenerateName() + "x7"
			return nil
		}
	}
	naming := with(t, c, func(config *client.Config) {
		config.Interceptors = append(config.Interceptors, client.On(named, client.VerbCreate))
	})
	_, err4 := client.Create(t.Context(), naming, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-"}})
	if err := errors.Join(err, err2, err3, err4); err != nil || gone == nil {
		t.Fatal(err, gone)
	}
	var got []string
	for _, r := range recording.Requests() {
		got = append(got, r.String())
	}
	want := []string{
		"get Node n1", "get Pod shop/none: NotFound", "patch Node n1", "update StatefulSet shop/db/status (dry run)", "create Pod shop/web-x7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded was %q, want %q", got, want)
	}
	writes := recording.Writes()
	if len(writes) != 3 || string(writes[0].Body) != `{"metadata":{"labels":{"a":"b"}}}` || writes[0].Status != http.StatusOK {
		t.Errorf("the writes are %+v", writes)
	}
	recording.Reset()
	if got := recording.Requests(); len(got) != 0 {
		t.Errorf("after Reset there are %v", got)
	}
}

func TestRecordingIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	var recording requestlog.Recording
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"}); err != nil {
				t.Error(err)
			}
			recording.Writes()
		})
	}
	wg.Wait()
	if got := len(recording.Requests()); got != 8 {
		t.Errorf("%d requests were recorded, want 8", got)
	}
}

// TestWarningsAreLoggedOnce: a client and the clients that With has derived from it log each warning once in total.
func TestWarningsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		w.Header().Add("Warning", `299 - "unknown field \"spec.sise\""`)
		w.Header().Add("Warning", `299 - "of `+r.Method+`"`)
		w.Header().Add("Warning", `199 - "from a proxy"`)
		return echo(w, r, body)
	}
	var first, second bytes.Buffer
	logger := func(to *bytes.Buffer) *slog.Logger {
		return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
	logged := func(to *bytes.Buffer) *client.Client {
		cluster, err := kube.Connect(c.Cluster().RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		cluster.SetLogger(logger(to))
		return with(t, c, func(config *client.Config) { config.Cluster = cluster })
	}
	elsewhere := logged(&second)
	c = logged(&first)
	dry := with(t, c, func(config *client.Config) { config.DryRun = true })
	for _, c := range []*client.Client{c, c, dry, elsewhere} {
		if _, err := client.Update(t.Context(), c, node()); err != nil {
			t.Fatal(err)
		}
	}
	const want = `level=WARN msg="the API server warns" warning="unknown field \"spec.sise\""` + "\n" + `level=WARN msg="the API server warns" warning="of PUT"` + "\n"
	if first.String() != want || second.String() != want {
		t.Errorf("logged was:\n%s\nto the other logger:\n%s\nwant for each:\n%s", first.String(), second.String(), want)
	}
}

func TestWithRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	if _, err := c.With(func(config *client.Config) { config.Cluster = nil }); err == nil {
		t.Error("a client without a cluster was made")
	}
	if _, err := (*client.Client)(nil).With(func(*client.Config) {}); err == nil {
		t.Error("a client was made of none")
	}
	config := c.Config()
	config.Interceptors = append(config.Interceptors, nil)
	if len(c.Config().Interceptors) != 0 {
		t.Error("the config that a client returns is its own")
	}
}

// TestRequestWithoutResponse: the reason reports a missing response; a write may have been done.
func TestRequestWithoutResponse(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"})
	if retry.Classify(err) != retry.Transient {
		t.Errorf("%v: the reason is %s", err, retry.Classify(err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Get[*corev1.Node](ctx, c, kube.Key{Name: "n1"})
	if retry.Classify(err) != retry.Default || !errors.Is(err, context.Canceled) {
		t.Errorf("%v: the reason is %s", err, retry.Classify(err))
	}
}

// ExampleRecording tests which requests a piece of code makes.
func ExampleRecording() {
	server, c, stop := startServer() // in a program: client.New
	defer stop()
	server.handle = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		return r.Method == http.MethodPatch && echo(w, r, body)
	}
	var recording requestlog.Recording
	c, err := c.With(func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
	if err != nil {
		fmt.Println(err)
		return
	}

	cordon := func(ctx context.Context, name string) error {
		before, err := client.Get[*corev1.Node](ctx, c, kube.Key{Name: name})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		after := before.DeepCopy()
		after.Spec.Unschedulable = true
		_, err = client.Patch(ctx, c, before, client.MergeFrom(before, after).Locked(before))
		return err
	}
	fmt.Println(cordon(context.Background(), "n1"), cordon(context.Background(), "n2"))
	for _, request := range recording.Requests() {
		fmt.Println(strings.TrimSpace(fmt.Sprint(request, " ", string(request.Body))))
	}
	// Output:
	// <nil> <nil>
	// get Node n1
	// patch Node n1 {"metadata":{"resourceVersion":"7"},"spec":{"unschedulable":true}}
	// get Node n2: NotFound
}

// An option that an interceptor sets is either sent or returns an error: dropping it would change the request.
func TestOptionsSetByInterceptorsAreSentOrRejected(t *testing.T) {
	t.Parallel()
	server, c, stop := startServer()
	t.Cleanup(stop)
	set := func(change func(r *client.Request)) *client.Client {
		return with(t, c, func(config *client.Config) {
			config.Interceptors = []client.Interceptor{func(next client.RoundTrip) client.RoundTrip {
				return func(ctx context.Context, r *client.Request) error {
					change(r)
					return next(ctx, r)
				}
			}}
		})
	}
	everything := set(func(r *client.Request) {
		r.List.TimeoutSeconds, r.List.SendInitialEvents, r.List.AllowWatchBookmarks = new(int64(7)), new(true), true
		r.List.ResourceVersion, r.List.ResourceVersionMatch = "5", metav1.ResourceVersionMatchNotOlderThan
	})
	_, _ = client.All[*corev1.Node](t.Context(), everything, kube.Selection{})
	_ = client.DeleteAllOf[*corev1.Pod](t.Context(), everything, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=x"})
	sent := server.log()
	if len(sent) != 2 {
		t.Fatalf("the requests are %q", sent)
	}
	for _, request := range sent {
		for _, param := range []string{"timeoutSeconds=7", "sendInitialEvents=true", "allowWatchBookmarks=true", "resourceVersion=5", "resourceVersionMatch=NotOlderThan"} {
			if !strings.Contains(request, param) {
				t.Errorf("%s was dropped: %s", param, request)
			}
		}
		if strings.Contains(request, "watch=") {
			t.Errorf("it is a watch: %s", request)
		}
	}
	get := func(c *client.Client) error {
		_, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"})
		return err
	}
	list := func(c *client.Client) error {
		_, err := client.All[*corev1.Node](t.Context(), c, kube.Selection{})
		return err
	}
	deletion := func(c *client.Client) error {
		return client.Delete(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	}
	_ = get(set(func(r *client.Request) { r.List.ResourceVersion = "5" }))
	if sent = server.log(); len(sent) != 3 || !strings.HasSuffix(sent[2], "n1?resourceVersion=5") {
		t.Errorf("the version of a get: %q", sent)
	}
	for want, try := range map[string]struct {
		do     func(c *client.Client) error
		change func(r *client.Request)
	}{
		"Request.Force":      {get, func(r *client.Request) { r.Force = true }},
		"Request.List,":      {get, func(r *client.Request) { r.List.TimeoutSeconds = new(int64(7)) }},
		"Request.List, ":     {get, func(r *client.Request) { r.List.ResourceVersion, r.List.ResourceVersionMatch = "5", "Exact" }},
		"which a delete":     {deletion, func(r *client.Request) { r.List.ResourceVersion = "5" }},
		"Request.List.Watch": {list, func(r *client.Request) { r.List.Watch = true }},
		"Request.Delete":     {get, func(r *client.Request) { r.Delete = &metav1.DeleteOptions{} }},
	} {
		before := len(server.log())
		if err := try.do(set(try.change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v", want, err)
		}
		if len(server.log()) != before {
			t.Errorf("%s: a request was sent", want)
		}
	}
}

// TestNilInformerRejected: a nil pointer is not nil in an interface.
func TestNilInformerRejected(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{Informers: []client.Informer{(*informer.Informer[*corev1.ConfigMap])(nil)}})
	if err == nil || !strings.Contains(err.Error(), "nil is among Informers, at 0") {
		t.Errorf("the error is %v", err)
	}
}

// TestListAnsweredByInterceptor: an interceptor may answer a list instead of the API server.
func TestListAnsweredByInterceptor(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	responses := func(client.RoundTrip) client.RoundTrip {
		return func(_ context.Context, r *client.Request) error {
			return json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"a"}}]}`), r.Response)
		}
	}
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{responses} })
	all, err := client.All[*corev1.Pod](t.Context(), c, kube.Selection{})
	if err != nil || len(all) != 1 || all[0].Name != "a" {
		t.Errorf("the list is %v, %v", all, err)
	}
}

// otherShelf is an informer of another cluster.
type otherShelf struct{ shelf }

func (otherShelf) ReadsFrom(server string) bool { return server == "https://other.invalid" }

func TestInformerOfAnotherClusterRejected(t *testing.T) {
	t.Parallel()
	shown := otherShelf{shelf{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}}
	for host, allowed := range map[string]bool{"https://other.invalid/": true, "https://this.invalid": false} {
		cluster, err := kube.Connect(&rest.Config{Host: host}, corev1.AddToScheme)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.New(client.Config{Cluster: cluster, Informers: shows(shown)})
		if allowed != (err == nil) || err != nil && !strings.Contains(err.Error(), "does not read from the API server of the Cluster (https://this.invalid)") {
			t.Errorf("%s: the error is %v", host, err)
		}
	}
}
