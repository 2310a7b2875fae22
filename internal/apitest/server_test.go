package apitest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const resource = "configmaps"

func key(name string) kube.Key { return kube.Key{Namespace: "shop", Name: name} }

func newServer(t *testing.T) (*apitest.Server, *kubernetes.Clientset) {
	t.Helper()
	widgets := apiserver.Custom(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "widgets")
	widgets.Status = true
	server := apitest.New(apiserver.ConfigMaps(), widgets)
	clients, err := kubernetes.NewForConfig(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	return server, clients
}

// put creates a ConfigMap, or changes it.
func put(server *apitest.Server, name, value string) string {
	return server.Edit(resource, key(name), "editor", func(obj map[string]any) bool {
		obj["data"] = map[string]any{"value": value}
		return true
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, clients := newServer(t)
		put(server, "a", "1")
		configMaps := clients.CoreV1().ConfigMaps("shop")
		var hooked []string
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			hooked = append(hooked, req.Method)
			switch req.Method {
			case http.MethodPut:
				return apitest.Failure(apierrors.NewTooManyRequests("later", 0)), nil
			case http.MethodDelete: // the client gives up before the server has handled the request
				<-req.Context().Done()
				do()
				return nil, req.Context().Err()
			}
			time.Sleep(time.Second)
			return do(), nil
		})
		began := time.Now()
		if _, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || time.Since(began) != time.Second {
			t.Errorf("a delayed get: %v after %s", err, time.Since(began))
		}
		if _, err := configMaps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a failed update: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := configMaps.Delete(ctx, "a", metav1.DeleteOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a delete that took too long: %v", err)
		}
		if server.Object(resource, key("a")) != nil {
			t.Error("the server did not handle the delete whose client gave up")
		}
		began = time.Now()
		if _, err := clients.Discovery().ServerResourcesForGroupVersion("example.com/v1"); err != nil || time.Since(began) != 0 {
			t.Errorf("discovery: %v after %s", err, time.Since(began))
		}
		server.Hook(nil)
		if list, err := configMaps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("a list without a hook: %v %v", list, err)
		}
		path := "/api/v1/namespaces/shop/configmaps"
		want := []string{"GET " + path + "/a", "PUT " + path + "/a", "DELETE " + path + "/a", "GET " + path}
		if got := server.Requests(); !slices.Equal(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
		if got := server.Requests(); len(got) != 0 {
			t.Errorf("requests %q after the last call of Requests", got)
		}
		if !slices.Equal(hooked, []string{"GET", "PUT", "DELETE"}) {
			t.Errorf("hooked requests %q", hooked)
		}
	})
}

func TestFailingVerbs(t *testing.T) {
	t.Parallel()
	server, clients := newServer(t)
	configMaps := clients.CoreV1().ConfigMaps("shop")
	broken := errors.New("connection reset")
	requests := map[string]func() error{
		"create": func() error {
			_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			return err
		},
		"get":  func() error { _, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); return err },
		"list": func() error { _, err := configMaps.List(t.Context(), metav1.ListOptions{}); return err },
		"watch": func() error {
			w, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
		"update": func() error {
			_, err := configMaps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			return err
		},
		"patch": func() error {
			_, err := configMaps.Patch(t.Context(), "a", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"delete": func() error { return configMaps.Delete(t.Context(), "a", metav1.DeleteOptions{}) },
		"deletecollection": func() error {
			return configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	}
	for _, verb := range []string{"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"} {
		request := requests[verb]
		for _, failure := range []error{broken, apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
			server.Fail(verb, failure)
			if err := request(); !errors.Is(err, failure) && (errors.Is(failure, broken) || !apierrors.IsForbidden(err)) {
				t.Errorf("%s failed with %v, want %v", verb, err, failure)
			}
		}
		server.Fail(verb, nil)
		if err := request(); err != nil {
			t.Errorf("%s after its failures: %v", verb, err)
		}
		if n := server.Count(verb); n != 3 {
			t.Errorf("%d requests of verb %s, want 3", n, verb)
		}
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	server, clients := newServer(t)
	first := put(server, "a", "1")
	server.Edit(resource, key("b"), "other", func(map[string]any) bool { return true })
	calls := 0
	second := server.Edit(resource, key("a"), "other", func(obj map[string]any) bool {
		if calls++; calls == 1 {
			put(server, "a", "2")
		}
		obj["immutable"] = true
		return true
	})
	obj, err := clients.CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if calls != 2 || obj.Data["value"] != "2" || obj.ResourceVersion != second || second <= first {
		t.Errorf("after %d calls of the change: version %s of %v, Edit returned %s", calls, obj.ResourceVersion, obj.Data, second)
	}
	if len(obj.ManagedFields) != 2 || obj.ManagedFields[0].Manager != "editor" || obj.ManagedFields[1].Manager != "other" {
		t.Errorf("managed fields %v", obj.ManagedFields)
	}
	if got := server.Keys(resource); !slices.Equal(got, []string{"shop/a", "shop/b"}) {
		t.Errorf("keys %q", got)
	}
	server.Edit(resource, key("b"), "other", func(map[string]any) bool { return false })
	if got := server.Keys(resource); !slices.Equal(got, []string{"shop/a"}) || server.Object(resource, key("b")) != nil {
		t.Errorf("keys %q after a delete", got)
	}
	defer func() {
		if problem := fmt.Sprint(recover()); !strings.Contains(problem, "immutable") {
			t.Errorf("an invalid edit: %s", problem)
		}
	}()
	put(server, "a", "3")
	t.Error("an immutable object was changed")
}

// A changed status is written to the subresource, after the object.
func TestEditStatus(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t)
	edit := func(spec, status any) {
		t.Helper()
		server.Edit("widgets.example.com", key("w"), "editor", func(obj map[string]any) bool {
			obj["spec"], obj["status"] = map[string]any{"size": spec}, map[string]any{"ready": status}
			return true
		})
		obj := server.Object("widgets", key("w"))
		if got, want := fmt.Sprint(obj.Object["spec"], obj.Object["status"]), fmt.Sprintf("map[size:%v] map[ready:%v]", spec, status); got != want {
			t.Errorf("stored %s, want %s", got, want)
		}
	}
	edit(int64(1), int64(1))
	edit(int64(1), int64(2))
	edit(int64(2), int64(2))
	server.Edit("widgets", key("w"), "editor", func(obj map[string]any) bool { delete(obj, "status"); return true })
	obj := server.Object("widgets", key("w"))
	if _, exists := obj.Object["status"]; exists || obj.GetGeneration() != 2 || obj.GetResourceVersion() != "1005" {
		t.Errorf("without its status: %v", obj.Object)
	}
}

// watch returns a function that returns the types and names of the events since its last call.
func watch(t *testing.T, server *apitest.Server, parameters string) func() string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://apitest.invalid/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion="+parameters, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	events := make(chan string, 100)
	go func() { // ends when the body is closed
		defer close(events)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			_, kind, _ := strings.Cut(lines.Text(), `"type":"`)
			_, name, _ := strings.Cut(lines.Text(), `"name":"`)
			events <- strings.Split(kind, `"`)[0] + " " + strings.Split(name, `"`)[0]
		}
	}()
	return func() string {
		synctest.Wait()
		var got []string
		for len(events) > 0 {
			got = append(got, <-events)
		}
		return strings.Join(got, ", ")
	}
}

// Subresources of Namespaces are not resources in a namespace, and a watch can have the old form of paths.
func TestCountOfUnusualPaths(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t)
	for _, test := range []struct{ path, verb string }{
		{"/api/v1/namespaces/shop/status", "get"}, {"/api/v1/watch/configmaps", "watch"}, {"/api/v1/configmaps?watch=False", "list"},
	} {
		before := server.Count(test.verb)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apitest.invalid"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if n := server.Count(test.verb) - before; n != 1 {
			t.Errorf("%s is counted %d times as %s", test.path, n, test.verb)
		}
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, _ := newServer(t)
		events := watch(t, server, "1000")
		steps := []struct {
			name string
			do   func()
			want string
		}{
			{"a change", func() { put(server, "a", "1") }, "ADDED a"},
			{"held changes", func() {
				server.HoldWatches(resource)
				put(server, "a", "2")
				put(server, "b", "1")
			}, ""},
			{"one released event", func() { server.ReleaseOne(resource) }, "MODIFIED a"},
			{"a compaction", func() { server.Compact() }, ""},
			{"all released", func() { server.ReleaseWatches(resource); put(server, "c", "1") }, "ADDED b, ADDED c"},
			{"a bookmark", func() { server.Bookmark(resource) }, "BOOKMARK "},
			{"watches of another resource end", func() { server.Break("widgets", false); put(server, "a", "3") }, "MODIFIED a"},
			{"watches end", func() { server.Break(resource, false); put(server, "a", "4") }, ""},
			{"a watch from a compacted version", func() { events = watch(t, server, "1001") }, "ERROR "},
			{"a watch from the history", func() { events = watch(t, server, "1004") }, "MODIFIED a, MODIFIED a"},
			{"the history ends", func() {
				server.HoldWatches(resource)
				server.Break("widgets", true)
				events = watch(t, server, "1005")
			}, "ERROR "},
			{"a streamed list", func() {
				server.HoldWatches(resource)
				events = watch(t, server, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
			}, "ADDED a, ADDED b, ADDED c, BOOKMARK "},
		}
		for _, step := range steps {
			step.do()
			if got := events(); got != step.want {
				t.Errorf("%s: events %q, want %q", step.name, got, step.want)
			}
		}
		if n := server.Watches(); n != 1 {
			t.Errorf("%d watches are open, want 1: the others have ended", n)
		}
	})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, _ := newServer(t)
		version := put(server, "a", "1")
		restore := server.Backup()
		put(server, "b", "1")
		events := watch(t, server, "1002")
		restore()
		if got := server.Keys(resource); !slices.Equal(got, []string{"shop/a"}) {
			t.Errorf("restored keys %q", got)
		}
		if second := put(server, "c", "1"); second != "1002" || version != "1001" {
			t.Errorf("the versions are %s and after the restore %s", version, second)
		}
		if got := events(); got != "" {
			t.Errorf("a watch from before the restore got %q", got)
		}
		restore()
		if got := server.Keys(resource); !slices.Equal(got, []string{"shop/a"}) {
			t.Errorf("keys %q, restored again", got)
		}
	})
}

func TestStaleLists(t *testing.T) {
	t.Parallel()
	server, clients := newServer(t)
	expect := func(want string) {
		t.Helper()
		list, err := clients.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %d", list.ResourceVersion, len(list.Items)); got != want {
			t.Errorf("version and objects of the list: %s, want %s", got, want)
		}
	}
	put(server, "a", "1")
	server.ServeStale()
	put(server, "b", "1")
	expect("1001 1")
	server.Fresh()
	expect("1002 2")
}

func TestUnknownResource(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t)
	for _, name := range []string{"pods", "widgets.example.org"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is known", name)
				}
			}()
			server.HoldWatches(name)
		}()
	}
}
