package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t *testing.T, kind string, n int, formats ...Format) (*httptest.Server, *Server) {
	t.Helper()
	s, err := New(kind, n, 1, formats...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return server, s
}

// waitForWatch waits for a watch, which follows a paged list later.
func waitForWatch(t *testing.T, s *Server) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		latest := s.latest
		s.mu.Unlock()
		if latest != nil {
			return
		}
		<-tick.C
	}
}

func post(t *testing.T, url string) string {
	t.Helper()
	response, err := http.DefaultClient.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %s %s %v", url, response.Status, body, err)
	}
	return string(body)
}

// listerWatcher lists and watches the kind through client-go, in pages or by a streamed list.
func listerWatcher(t *testing.T, url, kind string, f Format, streamed bool) (cache.ListerWatcher, runtime.Object) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: url, ContentConfig: rest.ContentConfig{ContentType: f.contentType(false)}, Transport: transport}
	scheme := runtime.NewScheme()
	if err := database.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var client cache.Getter
	var obj runtime.Object = &corev1.Pod{}
	if kind == probe.Pods {
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		client = clientset.CoreV1().RESTClient()
	} else {
		gv := database.GroupVersion()
		config.GroupVersion, config.APIPath = &gv, "/apis"
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		restClient, err := rest.RESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		client, obj = restClient, &database.Database{}
	}
	lw := cache.NewListWatchFromClient(client, kind, "", fields.Everything())
	if streamed {
		return lw, obj
	}
	return paged{lw}, obj
}

// paged hides that streamed lists are supported.
type paged struct{ *cache.ListWatch }

func (paged) IsWatchListSemanticsUnSupported() bool { return true }

func TestReflectorSeesObjectsAndEvents(t *testing.T) {
	t.Parallel()
	const n = 600 // more than a page
	for _, test := range []struct {
		kind     string
		format   Format
		streamed bool
		want     []string
	}{
		{probe.Pods, Protobuf, true, []string{"streamed list (protobuf)"}},
		{probe.Pods, Protobuf, false, []string{"list (protobuf)", "watch (protobuf)"}},
		{probe.Pods, JSON, true, []string{"streamed list (json)"}},
		{probe.Pods, JSON, false, []string{"list (json)", "watch (json)"}},
		{probe.Databases, JSON, true, []string{"streamed list (json)"}},
		{probe.Databases, JSON, false, []string{"list (json)", "watch (json)"}},
	} {
		t.Run(fmt.Sprintf("%s %s streamed %t", test.kind, test.format, test.streamed), func(t *testing.T) {
			t.Parallel()
			server, s := newServer(t, test.kind, n, test.format)
			lw, obj := listerWatcher(t, server.URL, test.kind, test.format, test.streamed)
			marks := make(chan string, 100)
			informer := cache.NewSharedIndexInformer(lw, obj, 0, nil)
			_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
				marks <- obj.(metav1.Object).GetAnnotations()[probe.EventAnnotation]
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); informer.RunWithContext(ctx) }()
			defer func() { stop(); <-done }()
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("not synced")
			}
			if got := len(informer.GetStore().List()); got != n {
				t.Fatalf("%d objects, want %d", got, n)
			}
			waitForWatch(t, s)
			before := time.Now().UnixNano()
			post(t, server.URL+"/control/prepare?burst=7&count=30&keys=10")
			post(t, server.URL+"/control/push?rate=2000")
			for want := range 30 {
				burst, seq, sent, err := probe.ParseMark(<-marks)
				if err != nil || burst != 7 || seq != want {
					t.Fatalf("burst %d, event %d, %v, want event %d of burst 7", burst, seq, err, want)
				}
				if sent < before || sent > time.Now().UnixNano() {
					t.Fatalf("sent at %d, want a time after %d", sent, before)
				}
			}
			var got []string
			if err := json.Unmarshal([]byte(post(t, server.URL+"/control/requests")), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObjectsAreAsInClusters(t *testing.T) {
	t.Parallel()
	const n = 2000
	strippedSize := func(m maker, f Format) (whole, stripped float64) {
		for i := range n {
			obj := m.object(i)
			obj.SetResourceVersion("123456789")
			all, err := encode(obj, f)
			if err != nil {
				t.Fatal(err)
			}
			obj.SetManagedFields(nil)
			rest, err := encode(obj, f)
			if err != nil {
				t.Fatal(err)
			}
			whole += float64(len(all)) / n
			stripped += float64(len(rest)) / n
		}
		return whole, stripped
	}
	for _, test := range []struct {
		name            string
		maker           maker
		format          Format
		whole, stripped float64
	}{
		{"pods", podsOf(1, n), Protobuf, 4900, 2170},
		{"databases", databasesOf(1, n), JSON, 3500, 2000},
	} {
		whole, stripped := strippedSize(test.maker, test.format)
		t.Logf("%s: %.0f bytes, %.0f without managedFields", test.name, whole, stripped)
		if whole < 0.9*test.whole || whole > 1.1*test.whole || stripped < 0.85*test.stripped || stripped > 1.15*test.stripped {
			t.Errorf("%s: %.0f and %.0f bytes, want about %.0f and %.0f", test.name, whole, stripped, test.whole, test.stripped)
		}
	}
}

func TestObjectsAreReproducible(t *testing.T) {
	t.Parallel()
	for _, m := range []maker{podsOf(1, 500), databasesOf(1, 500)} {
		for _, i := range []int{0, 7, 499} {
			if diff := cmp.Diff(m.object(i), m.object(i)); diff != "" {
				t.Errorf("%s %d made twice (-first +second):\n%s", m.kind, i, diff)
			}
		}
	}
}

func TestNamespaceOfReadsHasThousandObjects(t *testing.T) {
	t.Parallel()
	for kind, m := range map[string]maker{"pods": podsOf(1, 10000), "databases": databasesOf(1, 10000)} {
		count := 0
		for i := range 10000 {
			if m.object(i).GetNamespace() == probe.ListNamespace {
				count++
			}
		}
		if count < 990 || count > 1010 {
			t.Errorf("%d %s in %s, want about 1,000", count, kind, probe.ListNamespace)
		}
	}
}

func TestListInPages(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t, probe.Databases, 25)
	names, next, pages := make(map[string]bool), "", 0
	for ok := true; ok; ok = next != "" {
		response, err := http.DefaultClient.Get(server.URL + "/apis/bench.evenkeel.dev/v1/databases?limit=10&continue=" + next)
		if err != nil {
			t.Fatal(err)
		}
		var list database.DatabaseList
		err = json.NewDecoder(response.Body).Decode(&list)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names[item.Namespace+"/"+item.Name] = true
		}
		next = list.Continue
		pages++
	}
	if len(names) != 25 || pages != 3 {
		t.Errorf("%d objects in %d pages, want 25 in 3", len(names), pages)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	server, s := newServer(t, probe.Databases, 5)
	c, err := s.corpus(JSON)
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/bench.evenkeel.dev/v1/databases"
	for _, test := range []struct{ name, path, accept, want string }{
		{"protobuf of a custom resource", path, "application/vnd.kubernetes.protobuf", "NotAcceptable"},
		{"metadata only", path, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "NotAcceptable"},
		{"selector", path + "?labelSelector=a%3Db", "", "BadRequest"},
		{"bad resourceVersion", path + "?watch=1&resourceVersion=x", "", "BadRequest"},
		{"bad continue token", path + "?limit=1&continue=%25", "", "Expired"},
		{"history that is gone", path + "?watch=1&resourceVersion=5", "", "Expired"},
		{"watch that times out", path + "?watch=1&timeoutSeconds=1&resourceVersion=" + fmt.Sprint(c.version), "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Accept", test.accept)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" && len(body) > 0 || !strings.Contains(string(body), test.want) {
				t.Errorf("got %q, want %q in it", body, test.want)
			}
		})
	}
}
