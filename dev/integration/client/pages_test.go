package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestPages(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	for i := range 5 {
		must(client.Create(t.Context(), c, configMap(namespace, fmt.Sprint("c", i), map[string]string{"i": fmt.Sprint(i)})))(t)
	}
	ctx, calls := observe(t)
	all := must(client.All[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{namespace}}, client.PageSize(2)))(t)
	for i, obj := range all {
		if obj.Name != fmt.Sprint("c", i) || obj.Data["i"] != fmt.Sprint(i) || obj.Kind != "ConfigMap" {
			t.Errorf("object %d is %+v", i, obj)
		}
	}
	list := "list configmaps " + namespace + "/"
	if requests := calls.Take(); len(all) != 5 || !slices.Equal(requests, []string{list, list, list}) {
		t.Errorf("%d objects in the calls %q, want 5 on three pages", len(all), requests)
	}
	names := must(client.Keys[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{namespace}}, client.PageSize(2), client.NotOlderThan("0")))(t)
	if len(names) != 5 {
		t.Errorf("the names are %v", names)
	}
	one := must(client.All[*corev1.ConfigMap](ctx, c, kube.Selection{Namespaces: []string{namespace}, FieldSelector: "metadata.name=c3"}))(t)
	if len(one) != 1 || one[0].Name != "c3" {
		t.Errorf("by field there are %v", one)
	}
}

func TestListPage(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	for i := range 5 {
		must(client.Create(t.Context(), c, configMap(namespace, fmt.Sprint("c", i), nil)))(t)
	}
	next := func(token string) client.Page[*corev1.ConfigMap] {
		t.Helper()
		return must(client.ListPage[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{namespace}}, token, client.PageSize(2)))(t)
	}
	first := next("")
	must(client.Create(t.Context(), c, configMap(namespace, "c1b", nil)))(t)
	second := next(first.Continue)
	third := next(second.Continue)
	var listed []string
	for _, obj := range slices.Concat(first.Objects, second.Objects, third.Objects) {
		listed = append(listed, obj.Name)
	}
	if want := []string{"c0", "c1", "c2", "c3", "c4"}; !slices.Equal(listed, want) || third.Continue != "" ||
		first.ResourceVersion == "" || third.ResourceVersion != first.ResourceVersion {
		t.Errorf("the pages are %q, of versions %s to %s, with the last token %q", listed, first.ResourceVersion, third.ResourceVersion, third.Continue)
	}
	if current := next(withoutVersion(t, first.Continue)); len(current.Objects) != 2 || current.Objects[0].Name != "c1b" {
		t.Errorf("in the current state the next page is %v", current)
	}
	stream := must(client.Watch[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{namespace}}, client.NotOlderThan(first.ResourceVersion)))(t)
	defer stream.Stop()
	if event := <-stream.ResultChan(); event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "c1b" {
		t.Errorf("the first change is %+v", event)
	}
	if _, err := client.ListPage[*corev1.ConfigMap](t.Context(), c, kube.Selection{}, "no token"); !apierrors.IsBadRequest(err) {
		t.Errorf("an invalid token: %v", err)
	}
}

// TestListContinuesAfterExpiredToken answers the second page with the error that the API server returns minutes later,
// when the state of the first page has expired. The new continue token in it is the API server's own.
func TestListContinuesAfterExpiredToken(t *testing.T) {
	t.Parallel()
	c, namespace := newClient(t)
	for _, name := range []string{"a", "b", "d", "e"} {
		must(client.Create(t.Context(), c, configMap(namespace, name, nil)))(t)
	}
	forgets := func(next client.RoundTrip) client.RoundTrip {
		forgotten := false
		return func(ctx context.Context, r *client.Request) error {
			if forgotten || r.List.Continue == "" {
				return next(ctx, r)
			}
			forgotten = true
			// Between the pages a write was made to an object that had been listed.
			must(client.Create(ctx, c, configMap(namespace, "c"+fmt.Sprint(r.List.Limit), nil)))(t)
			expired := apierrors.NewResourceExpired("too old")
			expired.ErrStatus.Continue = withoutVersion(t, r.List.Continue)
			return expired
		}
	}
	forgetful := func() *client.Client {
		return with(t, c, func(config *client.Config) {
			config.Interceptors = []client.Interceptor{client.On(forgets, client.VerbList)}
		})
	}
	var listed []string
	for obj, err := range client.List[*corev1.ConfigMap](t.Context(), forgetful(), kube.Selection{Namespaces: []string{namespace}}, client.PageSize(2)) {
		listed = append(listed, must(obj, err)(t).Name)
	}
	if want := []string{"a", "b", "c2", "d", "e"}; !slices.Equal(listed, want) {
		t.Errorf("List came to %q, want %q", listed, want)
	}
	all := must(client.All[*corev1.ConfigMap](t.Context(), forgetful(), kube.Selection{Namespaces: []string{namespace}}, client.PageSize(3)))(t)
	if len(all) != 6 {
		t.Errorf("All came to %d objects, want all 6 of now", len(all))
	}
}

// withoutVersion returns the token that the API server offers in place of an expired one.
func withoutVersion(t *testing.T, token string) string {
	t.Helper()
	var content map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(token))(t), &content); err != nil {
		t.Fatal(err)
	}
	content["rv"] = -1
	return base64.RawURLEncoding.EncodeToString(must(json.Marshal(content))(t))
}
