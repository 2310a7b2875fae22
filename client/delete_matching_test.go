package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// copies is a server with ConfigMaps in two namespaces. Those named a, b and c have the label copy=yes.
type copies struct {
	*apitest.Server
	client *client.Client
}

func newCopies(t *testing.T) copies {
	t.Helper()
	server := apitest.New(apiserver.ConfigMaps())
	s := copies{Server: server}
	for _, namespace := range []string{"bank", "shop"} {
		for _, name := range []string{"a", "b", "c", "original"} {
			s.set(namespace, name, func(metadata map[string]any) {
				metadata["labels"] = map[string]any{"copy": "yes"}
				if name == "original" {
					delete(metadata, "labels")
				}
			})
		}
	}
	cluster, err := kube.Connect(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	// A client of an informer that shows no objects: it must not be asked.
	s.client, err = client.New(client.Config{Cluster: cluster, Informers: shows(
		shelf{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), model: &corev1.ConfigMap{}, whole: true, covers: "*"},
	)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s copies) set(namespace, name string, change func(metadata map[string]any)) {
	s.Edit("configmaps", kube.Key{Namespace: namespace, Name: name}, "somebody", func(obj map[string]any) bool {
		change(obj["metadata"].(map[string]any))
		return true
	})
}

func (s copies) remove(namespace, name string) {
	s.Edit("configmaps", kube.Key{Namespace: namespace, Name: name}, "somebody", func(map[string]any) bool { return false })
}

// keys returns the keys of all ConfigMaps that are not being deleted.
func (s copies) keys(t *testing.T) (keys []string) {
	t.Helper()
	for obj, err := range client.List[*corev1.ConfigMap](t.Context(), s.client, kube.Selection{}, client.FromAPI()) {
		if err != nil {
			t.Fatal(err)
		}
		if obj.DeletionTimestamp == nil {
			keys = append(keys, kube.KeyOf(obj).String())
		}
	}
	return keys
}

// copiesIn selects the objects with the label copy=yes.
func copiesIn(namespaces ...string) kube.Selection {
	return kube.Selection{Namespaces: namespaces, LabelSelector: "copy=yes"}
}

func keysOf(objects []*corev1.ConfigMap) (keys []string) {
	for _, obj := range objects {
		keys = append(keys, kube.KeyOf(obj).String())
	}
	return keys
}

func TestDeleteMatching(t *testing.T) {
	t.Parallel()
	all := []string{"bank/a", "bank/b", "bank/c", "bank/original", "shop/a", "shop/b", "shop/c", "shop/original"}
	named := func(names ...string) func(*corev1.ConfigMap) (bool, error) {
		return func(c *corev1.ConfigMap) (bool, error) { return slices.Contains(names, c.Name), nil }
	}
	for name, test := range map[string]struct {
		match   func(*corev1.ConfigMap) (bool, error)
		selects kube.Selection
		options []client.DeleteOption
		want    []string // deleted
		stay    bool
	}{
		"in all namespaces":     {match: named("a"), selects: copiesIn(kube.AllNamespaces), want: []string{"bank/a", "shop/a"}},
		"in one namespace":      {match: named("a"), selects: copiesIn("shop"), want: []string{"shop/a"}},
		"in two namespaces":     {match: named("a"), selects: copiesIn("shop", "bank", "shop"), want: []string{"shop/a", "bank/a"}},
		"not without the label": {match: named("a", "original"), selects: copiesIn(kube.AllNamespaces), want: []string{"bank/a", "shop/a"}},
		"nothing matches":       {match: named("x"), selects: copiesIn(kube.AllNamespaces)},
		"a dry run":             {match: named("a"), selects: copiesIn(kube.AllNamespaces), options: []client.DeleteOption{client.DryRun()}, want: []string{"bank/a", "shop/a"}, stay: true},
		"by a field":            {match: named("a", "b"), selects: kube.Selection{Namespaces: []string{kube.AllNamespaces}, FieldSelector: "metadata.name=b"}, want: []string{"bank/b", "shop/b"}},
		"match changes its copy": {match: func(c *corev1.ConfigMap) (bool, error) {
			c.UID, c.ResourceVersion = "x", "1"
			return c.Name == "a", nil
		}, selects: copiesIn(kube.AllNamespaces), want: []string{"bank/a", "shop/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCopies(t)
			deleted, err := client.DeleteMatching(t.Context(), s.client, test.selects, test.match, test.options...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, keysOf(deleted)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			left := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !test.stay && slices.Contains(test.want, key) })
			if diff := cmp.Diff(left, s.keys(t)); diff != "" {
				t.Errorf("objects that are left (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeleteMatchingRetriesChangedObjects: another client writes each object after it was listed.
func TestDeleteMatchingRetriesChangedObjects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(s copies)
		always  bool
		want    []string // deleted
		asked   int      // calls of match about shop/a
		changed bool     // the error is ErrChanged
	}{
		"and it still matches":   {change: func(s copies) { s.set("shop", "a", annotate) }, want: []string{"shop/a"}, asked: 2},
		"and it is needed again": {change: func(s copies) { s.set("shop", "a", need) }, asked: 2},
		"and it is not selected": {change: func(s copies) { s.set("shop", "a", func(m map[string]any) { delete(m, "labels") }) }, asked: 1},
		"and it is gone":         {change: func(s copies) { s.remove("shop", "a") }, asked: 1},
		"and it was created again": {change: func(s copies) {
			s.remove("shop", "a")
			s.set("shop", "a", func(m map[string]any) { need(m); m["labels"] = map[string]any{"copy": "yes"} })
		}, asked: 2},
		"and it is being deleted":       {change: func(s copies) { s.set("shop", "a", hold); s.remove("shop", "a") }, asked: 1},
		"and it changes in every round": {change: func(s copies) { s.set("shop", "a", annotate) }, always: true, asked: 3, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCopies(t)
			asked := 0
			deleted, err := client.DeleteMatching(t.Context(), s.client, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "copy=yes", FieldSelector: "metadata.name=a"}, func(c *corev1.ConfigMap) (bool, error) {
				asked++
				if asked == 1 || test.always {
					test.change(s)
				}
				return c.Annotations["needed"] == "", nil
			})
			if errors.Is(err, client.ErrChanged) != test.changed || !test.changed && err != nil {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(test.want, keysOf(deleted)); diff != "" || asked != test.asked {
				t.Errorf("match was called %d times, want %d; deleted (-want +got):\n%s", asked, test.asked, diff)
			}
		})
	}
}

func annotate(m map[string]any) {
	annotations, _ := m["annotations"].(map[string]any)
	m["annotations"] = map[string]any{"count": fmt.Sprint(annotations["count"], "+1")}
}
func need(m map[string]any) { m["annotations"] = map[string]any{"needed": "yes"} }
func hold(m map[string]any) { m["finalizers"] = []any{"shop.example.com/hold"} }

// TestDeleteMatchingKeepsFinalizers: an object with a finalizer is deleted by the program that owns it, and is not touched
// again meanwhile.
func TestDeleteMatchingKeepsFinalizers(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	s.set("shop", "a", hold)
	for round, want := range []string{"shop/a", ""} {
		deleted, err := client.DeleteMatching(t.Context(), s.client, copiesIn("shop"), func(c *corev1.ConfigMap) (bool, error) { return c.Name == "a", nil })
		if got := strings.Join(keysOf(deleted), " "); got != want || err != nil {
			t.Errorf("round %d: deleted %q, %v; want %q", round, got, err, want)
		}
	}
	held, err := client.Get[*corev1.ConfigMap](t.Context(), s.client, kube.Key{Namespace: "shop", Name: "a"}, client.FromAPI())
	if err != nil || !cmp.Equal(held.Finalizers, []string{"shop.example.com/hold"}) {
		t.Errorf("the object is %+v, %v", held, err)
	}
}

func TestDeleteMatchingFails(t *testing.T) {
	t.Parallel()
	errUnknown := errors.New("the list of customers is not available")
	everything := func(*corev1.ConfigMap) (bool, error) { return true, nil }
	s := newCopies(t)
	all := s.keys(t)
	for name, test := range map[string]struct {
		match   func(*corev1.ConfigMap) (bool, error)
		selects kube.Selection
		options []client.DeleteOption
		want    string
	}{
		"no function":         {selects: copiesIn("shop"), want: "the function match is nil"},
		"an empty selector":   {match: everything, selects: kube.Selection{Namespaces: []string{"shop"}}, want: "no LabelSelector and no FieldSelector"},
		"no namespace":        {match: everything, selects: copiesIn(), want: "the selection needs Namespaces, or kube.AllNamespaces"},
		"an option of Delete": {match: everything, selects: copiesIn("shop"), options: []client.DeleteOption{client.IfUnchanged()}, want: "option IfUnchanged: this call accepts only DryRun, GracePeriod, Propagation"},
		"a failing function": {
			match:   func(*corev1.ConfigMap) (bool, error) { return true, errUnknown },
			selects: copiesIn(kube.AllNamespaces), want: "delete ConfigMap bank/a: match it: the list of customers is not available",
		},
	} {
		deleted, err := client.DeleteMatching(t.Context(), s.client, test.selects, test.match, test.options...)
		if err == nil || !strings.Contains(err.Error(), test.want) || deleted != nil {
			t.Errorf("%s: %v, %v; want %q", name, keysOf(deleted), err, test.want)
		}
	}
	if diff := cmp.Diff(all, s.keys(t)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}

	// One object cannot be deleted, and the others are.
	s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "shop/configmaps/a") {
			return apitest.Failure(apierrors.NewForbidden(corev1.Resource("configmaps"), "a", errors.New("not this one"))), nil
		}
		return do(), nil
	})
	deleted, err := client.DeleteMatching(t.Context(), s.client, copiesIn("shop"), everything)
	if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "delete ConfigMap shop/a: ") || !cmp.Equal(keysOf(deleted), []string{"shop/b", "shop/c"}) {
		t.Errorf("%v, %v", keysOf(deleted), err)
	}
}

// TestDeleteMatchingEndsAfterTenErrors: what fails for ten objects fails for the others too.
func TestDeleteMatchingEndsAfterTenErrors(t *testing.T) {
	t.Parallel()
	s := newCopies(t)
	for i := range 20 {
		s.set("shop", fmt.Sprint("many", i), func(m map[string]any) { m["labels"] = map[string]any{"many": "yes"} })
	}
	s.Fail("delete", apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("none of them")))
	asked := 0
	_, err := client.DeleteMatching(t.Context(), s.client, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "many"}, func(*corev1.ConfigMap) (bool, error) { asked++; return true, nil })
	if !apierrors.IsForbidden(err) || asked != 10 {
		t.Errorf("match was called %d times, want 10: %v", asked, err)
	}
}

// ExampleDeleteMatching removes the copies of a ConfigMap from namespaces that do not need them anymore.
func ExampleDeleteMatching() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	for _, namespace := range []string{"shop", "bank", "zoo"} {
		if _, err := client.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "rates", Labels: map[string]string{"copy-of": "rates"},
		}}); err != nil {
			fmt.Println(err)
			return
		}
	}
	needed := map[string]bool{"bank": true}
	copies := kube.Selection{Namespaces: []string{kube.AllNamespaces}, LabelSelector: "copy-of=rates"}
	deleted, err := client.DeleteMatching(ctx, c, copies, func(live *corev1.ConfigMap) (bool, error) {
		return !needed[live.Namespace], nil
	})
	for _, obj := range deleted {
		fmt.Println("deleted", kube.KeyOf(obj))
	}
	fmt.Println(err)
	// Output:
	// deleted shop/rates
	// deleted zoo/rates
	// <nil>
}
