package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// newPageServer returns a server with the Pods a to e.
func newPageServer(t *testing.T) (*apitest.Server, *client.Client) {
	t.Helper()
	server := apitest.New(apitest.Pods())
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		putPod(server, name)
	}
	cluster, err := kube.Connect(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	// A client of a covering informer: no page is read from it.
	c, err := client.New(client.Config{Cluster: cluster, Informers: shows(
		shelf{kind: corev1.SchemeGroupVersion.WithKind("Pod"), model: &corev1.Pod{}, whole: true, covers: "*"},
	)})
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

func putPod(server *apitest.Server, name string) {
	server.Edit("pods", kube.Key{Namespace: "shop", Name: name}, "somebody", func(map[string]any) bool { return true })
}

func TestListPageReturnsPagesOfOneState(t *testing.T) {
	t.Parallel()
	server, c := newPageServer(t)
	var pages [][]string
	token, version := "", ""
	for {
		page, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}}, token, client.PageSize(2))
		if err != nil {
			t.Fatal(err)
		}
		if version != "" && page.ResourceVersion != version {
			t.Errorf("a page is of version %s, the first was of %s", page.ResourceVersion, version)
		}
		version = page.ResourceVersion
		pages = append(pages, names(page.Objects))
		putPod(server, "b2") // not in the state of the first page
		if token = page.Continue; token == "" {
			break
		}
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"c", "d"}, {"e"}}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// TestListPageContinuesInCurrentState: when the state of the first page has expired, the error comes with a token of the
// current state.
func TestListPageContinuesInCurrentState(t *testing.T) {
	t.Parallel()
	server, c := newPageServer(t)
	size := client.PageSize(2)
	first, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, "", size)
	if err != nil || !cmp.Equal(names(first.Objects), []string{"a", "b"}) {
		t.Fatalf("the first page is %v, %v", names(first.Objects), err)
	}
	putPod(server, "b2")
	server.Compact()
	expired, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, first.Continue, size)
	if !apierrors.IsResourceExpired(err) || retry.Classify(err) != retry.Transient || expired.Objects != nil ||
		!strings.HasPrefix(err.Error(), "list Pod: ") {
		t.Fatalf("after a compaction: %v, %v", expired, err)
	}
	second, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, expired.Continue, size)
	if err != nil || !cmp.Equal(names(second.Objects), []string{"b2", "c"}) {
		t.Errorf("the next page is %v, %v", names(second.Objects), err)
	}
}

// TestListPageDropsVersionWithToken: the API server rejects both together.
func TestListPageDropsVersionWithToken(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = paged(false, "")
	page, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, "", client.NotOlderThan("7"), client.PageSize(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, page.Continue, client.NotOlderThan("7"), client.PageSize(2)); err != nil {
		t.Fatal(err)
	}
	const pods = "GET /api/v1/pods"
	want := []string{pods + "?limit=2&resourceVersion=7&resourceVersionMatch=NotOlderThan", pods + "?continue=second&limit=2"}
	if diff := cmp.Diff(want, server.log()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestListPageFails(t *testing.T) {
	t.Parallel()
	_, c := newPageServer(t)
	if _, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, "no token"); !apierrors.IsBadRequest(err) {
		t.Errorf("an invalid token: %v", err)
	}
	if _, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, "", client.PageSize(-1)); err == nil {
		t.Error("a negative PageSize has no error")
	}
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"p"},"spec":7}]}`))
		return true
	}
	if page, err := client.ListPage[*corev1.Pod](t.Context(), c, kube.Selection{}, ""); err == nil || page.Objects != nil || !strings.Contains(err.Error(), "decode Pod p") {
		t.Errorf("an invalid object: %v, %v", page, err)
	}
}

// ExampleListPage handles requests of a program's own API: each returns a page and the token of the next one. A Watch
// from the version of the first page starts with the changes after it.
func ExampleListPage() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	answer := func(token string) (next, version string, err error) {
		page, err := client.ListPage[*corev1.Pod](ctx, c, kube.Selection{Namespaces: []string{"shop"}}, token, client.PageSize(1))
		if apierrors.IsResourceExpired(err) {
			return "", "", fmt.Errorf("the list has changed too much: start again: %w", err)
		}
		for _, pod := range page.Objects {
			fmt.Println(pod.Name)
		}
		return page.Continue, page.ResourceVersion, err
	}
	next, version, err := answer("")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, _, err := answer(next); err != nil {
		fmt.Println(err)
		return
	}
	changes, err := client.Watch[*corev1.Pod](ctx, c, kube.Selection{Namespaces: []string{"shop"}}, client.NotOlderThan(version))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer changes.Stop()
	if _, err := client.Create(ctx, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}); err != nil {
		fmt.Println(err)
		return
	}
	for change := range changes.ResultChan() {
		if change.Type == watch.Added {
			fmt.Println(change.Object.(*corev1.Pod).Name, "added")
			break
		}
	}
	// Output:
	// db-0
	// web-0
	// new added
}
