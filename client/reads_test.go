package client_test

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// paged answers lists of the Pods a, b and c with two Pods on a page, and drops its state after the first page.
func paged(forgets bool, token string) func(w http.ResponseWriter, r *http.Request, body []byte) bool {
	return func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		query := r.URL.Query()
		list := func(next string, names ...string) {
			pods := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: next}}
			for _, name := range names {
				pods.Items = append(pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
			}
			respond(w, http.StatusOK, pods)
		}
		switch {
		case query.Get("limit") == "":
			list("", "a", "b", "c", "d")
		case query.Get("continue") == "":
			list("second", "a", "b")
		case query.Get("continue") == "second" && forgets:
			expired := apierrors.NewResourceExpired("too old")
			expired.ErrStatus.Continue = token
			refuse(w, expired)
		default:
			list("", "c", "d")
		}
		return true
	}
}

func names(all []*corev1.Pod) (list []string) {
	for _, pod := range all {
		list = append(list, pod.Name)
	}
	return list
}

func TestPages(t *testing.T) {
	t.Parallel()
	const pods = "GET /api/v1/pods"
	for name, test := range map[string]struct {
		forgets bool
		token   string
		all     bool
		expired bool
		want    []string // requests
	}{
		"list":                             {want: []string{pods + "?limit=2", pods + "?continue=second&limit=2"}},
		"list, which the server forgets":   {forgets: true, token: "now", want: []string{pods + "?limit=2", pods + "?continue=second&limit=2", pods + "?continue=now&limit=2"}},
		"list, and there is no other way":  {forgets: true, expired: true, want: []string{pods + "?limit=2", pods + "?continue=second&limit=2"}},
		"list, and it would never end":     {forgets: true, token: "second", expired: true, want: []string{pods + "?limit=2", pods + "?continue=second&limit=2"}},
		"all":                              {all: true, want: []string{pods + "?limit=2", pods + "?continue=second&limit=2"}},
		"all, which the server forgets":    {all: true, forgets: true, token: "now", want: []string{pods + "?limit=2", pods + "?continue=second&limit=2", pods}},
		"all, without a token to go on at": {all: true, forgets: true, want: []string{pods + "?limit=2", pods + "?continue=second&limit=2", pods}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.handle = paged(test.forgets, test.token)
			var got []*corev1.Pod
			var err error
			if test.all {
				got, err = client.All[*corev1.Pod](t.Context(), c, kube.Selection{}, client.PageSize(2))
			} else {
				for pod, e := range client.List[*corev1.Pod](t.Context(), c, kube.Selection{}, client.PageSize(2)) {
					if e != nil {
						err = e
						continue // nothing may follow an error
					}
					got = append(got, pod)
				}
			}
			if apierrors.IsResourceExpired(err) != test.expired || err != nil && !strings.HasPrefix(err.Error(), "list Pod: ") {
				t.Errorf("the error is %v", err)
			}
			want := []string{"a", "b", "c", "d"}
			if test.expired {
				want = want[:2]
			}
			if diff := cmp.Diff(want, names(got)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, server.log()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPagesAreRequestedOnDemand: a loop that ends early requests no further pages.
func TestPagesAreRequestedOnDemand(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = paged(false, "")
	for pod, err := range client.List[*corev1.Pod](t.Context(), c, kube.Selection{}, client.PageSize(2)) {
		if err != nil {
			t.Fatal(err)
		}
		if pod.Kind != "Pod" || pod.APIVersion != "v1" {
			t.Errorf("the kind of an item is %q", pod.GroupVersionKind())
		}
		if pod.Name == "b" {
			break
		}
	}
	if got := server.log(); len(got) != 1 {
		t.Errorf("the requests are %q, want one page", got)
	}
}

// shelf is an Informer that shows these objects.
type shelf struct {
	cache.Informer
	kind    schema.GroupVersionKind
	model   kube.Object
	whole   bool
	covers  string // the namespace that it covers; "*": all
	objects []kube.Object
	err     error
}

func (shelf) ReadsFrom(string) bool { return true }

func (s shelf) Name() string                   { return "shelf" }
func (s shelf) Kind() schema.GroupVersionKind  { return s.kind }
func (s shelf) NewObject() (kube.Object, bool) { return s.model, s.whole }
func (s shelf) Covers(namespace string, _ labels.Selector) bool {
	return s.covers == "*" || s.covers != "" && s.covers == namespace
}

func (s shelf) HasFields(fields.Requirements) bool { return false }

func (s shelf) Metadata() cache.Reader { return s }

func (s shelf) Object(key kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	for _, obj := range s.objects {
		if kube.KeyOf(obj) == key {
			return obj.DeepCopyObject().(kube.Object), nil, true, s.err
		}
	}
	return nil, nil, false, s.err
}

func (s shelf) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		for _, obj := range s.objects {
			if namespace != "" && obj.GetNamespace() != namespace || selector != nil && !selector.Matches(labels.Set(obj.GetLabels())) {
				continue
			}
			if !yield(obj.DeepCopyObject().(kube.Object), s.err) {
				return
			}
		}
	}
}

// restarted is an Informer that covers all objects, or none, before it is read and afterwards.
type restarted struct {
	shelf
	before, after bool
	read          bool
}

func (r *restarted) Covers(string, labels.Selector) bool {
	if r.read {
		return r.after
	}
	return r.before
}

func (r *restarted) Metadata() cache.Reader { return r }

func (r *restarted) Object(key kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	r.read = true
	return r.shelf.Object(key)
}

func (r *restarted) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	r.read = true
	return r.shelf.Objects(namespace, selector)
}

// TestInformerRestartsDuringRead: an informer that has listed only after it was read, or was stopped before, does not
// prove that an object is missing.
func TestInformerRestartsDuringRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after bool
		objects       bool
		requests      int
		fails         bool
	}{
		"get while it lists":                       {after: true, requests: 1},
		"get while it stops":                       {before: true, requests: 1},
		"get of what it covers":                    {before: true, after: true},
		"list while it stops":                      {before: true, requests: 1},
		"list while it stops after the first item": {before: true, objects: true, fails: true},
		"list of what it covers":                   {before: true, after: true, objects: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.handle = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if strings.HasSuffix(r.URL.Path, "/statefulsets") {
					respond(w, http.StatusOK, &appsv1.StatefulSetList{})
					return true
				}
				return false
			}
			informer := &restarted{shelf: databases(true, ""), before: test.before, after: test.after}
			if !test.objects {
				informer.objects = nil
			}
			c = with(t, c, func(config *client.Config) { config.Informers = shows(informer) })
			var err error
			if strings.HasPrefix(name, "get") {
				_, err = client.Get[*appsv1.StatefulSet](t.Context(), c, kube.KeyOf(database()))
			} else {
				_, err = client.All[*appsv1.StatefulSet](t.Context(), c, kube.Selection{})
			}
			if got := server.log(); len(got) != test.requests {
				t.Errorf("the requests are %q, want %d", got, test.requests)
			}
			if test.fails != (err != nil && !errors.Is(err, client.ErrGone)) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func databases(whole bool, covers string) shelf {
	db := database()
	db.Labels = map[string]string{"app": "db"}
	return shelf{
		kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), model: &appsv1.StatefulSet{}, whole: whole, covers: covers,
		objects: []kube.Object{db},
	}
}

// TestReadsFromInformers: objects that an informer shows, and objects that it covers and does not have, are not
// requested from the API server.
func TestReadsFromInformers(t *testing.T) {
	t.Parallel()
	key, other := kube.Key{Namespace: "shop", Name: "db"}, kube.Key{Namespace: "shop", Name: "other"}
	kind := client.OfKind(databases(true, "").kind)
	get := func(key kube.Key, options ...client.ReadOption) func(c *client.Client) (any, error) {
		return func(c *client.Client) (any, error) {
			return client.Get[*appsv1.StatefulSet](t.Context(), c, key, options...)
		}
	}
	for name, test := range map[string]struct {
		informer shelf
		read     func(c *client.Client) (any, error)
		requests bool // whether requests were made
		gone     bool
	}{
		"it shows the object":                {informer: databases(true, ""), read: get(key)},
		"it shows it, and has parts only":    {informer: databases(false, "*"), read: get(key), requests: true},
		"it knows that there is none":        {informer: databases(true, "*"), read: get(other), gone: true},
		"it knows that of this namespace":    {informer: databases(true, "shop"), read: get(other), gone: true},
		"it does not know":                   {informer: databases(true, ""), read: get(other), requests: true, gone: true},
		"it has another version of the kind": {informer: shelf{kind: schema.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "StatefulSet"}, covers: "*"}, read: get(key), requests: true},
		"FromAPI":                            {informer: databases(true, "*"), read: get(key, client.FromAPI()), requests: true},
		"NotOlderThan":                       {informer: databases(true, "*"), read: get(key, client.NotOlderThan("0")), requests: true},
		"GetLive": {informer: databases(true, "*"), requests: true, read: func(c *client.Client) (any, error) {
			return client.GetLive(t.Context(), c, database())
		}},
		"it fails": {informer: func() shelf { s := databases(true, "*"); s.err = errors.New("torn bytes"); return s }(), read: get(key)},
		"metadata of parts": {informer: databases(false, "*"), read: func(c *client.Client) (any, error) {
			m, err := client.Get[*metav1.PartialObjectMetadata](t.Context(), c, key, kind)
			if err == nil && (m.Kind != "StatefulSet" || m.Labels["app"] != "db" || m.UID != "u1") {
				err = fmt.Errorf("it is %+v", m)
			}
			return m, err
		}},
		"unstructured": {informer: databases(true, "*"), read: func(c *client.Client) (any, error) {
			u, err := client.Get[*unstructured.Unstructured](t.Context(), c, key, kind)
			if replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); err == nil && (u.GetKind() != "StatefulSet" || replicas != 3) {
				err = fmt.Errorf("it is %+v", u)
			}
			return u, err
		}},
		"Exists, and it does not": {informer: databases(false, "*"), read: func(c *client.Client) (any, error) {
			found, err := client.Exists[*appsv1.StatefulSet](t.Context(), c, other)
			if found {
				err = errors.New("found")
			}
			return found, err
		}},
		"Keys": {informer: databases(false, "*"), read: func(c *client.Client) (any, error) {
			found, err := client.Keys[*appsv1.StatefulSet](t.Context(), c, kube.Selection{LabelSelector: "app=db"})
			if err == nil && !found.Has(key) {
				err = fmt.Errorf("the names are %v", found)
			}
			return found, err
		}},
		"All, of another label": {informer: databases(true, "shop"), read: func(c *client.Client) (any, error) {
			all, err := client.All[*appsv1.StatefulSet](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app!=db"})
			if len(all) > 0 {
				err = fmt.Errorf("the objects are %v", all)
			}
			return all, err
		}},
		"All, which it does not cover": {informer: databases(true, "shop"), requests: true, read: func(c *client.Client) (any, error) {
			return client.All[*appsv1.StatefulSet](t.Context(), c, kube.Selection{})
		}},
		"All by a field": {informer: databases(true, "*"), requests: true, read: func(c *client.Client) (any, error) {
			return client.All[*appsv1.StatefulSet](t.Context(), c, kube.Selection{FieldSelector: "metadata.name=db"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			if strings.HasPrefix(name, "All") {
				server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					respond(w, http.StatusOK, &appsv1.StatefulSetList{})
					return true
				}
			}
			c = with(t, c, func(config *client.Config) { config.Informers = shows(test.informer) })
			_, err := test.read(c)
			switch {
			case test.informer.err != nil:
				if !errors.Is(err, test.informer.err) {
					t.Errorf("the error is %v, want the informer's", err)
				}
			case errors.Is(err, client.ErrGone) != test.gone || apierrors.IsNotFound(err) != test.gone || !test.gone && err != nil:
				t.Errorf("the error is %v, want gone: %t", err, test.gone)
			}
			if got := server.log(); (len(got) > 0) != test.requests {
				t.Errorf("requests were made: %q, want some: %t", got, test.requests)
			}
		})
	}
}

// TestReadFromOneOfSeveralInformers: the first informer that shows an object provides it.
func TestReadFromOneOfSeveralInformers(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	c = with(t, c, func(config *client.Config) {
		config.Informers = shows(databases(false, "*"), databases(true, "shop"), databases(true, "*"))
	})
	if db, err := client.Get[*appsv1.StatefulSet](t.Context(), c, kube.KeyOf(database())); err != nil || db.Labels["app"] != "db" || server.log() != nil {
		t.Errorf("%v, %v; the requests are %q", db, err, server.log())
	}
}

// TestFieldSelectorsAreCombined: field selectors must all match, like label selectors. If only the last one counted, a
// deletion would delete too many objects.
func TestFieldSelectorsAreCombined(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = echo
	err := client.DeleteAllOf[*corev1.Pod](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}, FieldSelector: "spec.nodeName=n1" + "," + "status.phase=Failed"})
	if err != nil {
		t.Fatal(err)
	}
	if got := server.log()[0]; !strings.Contains(got, "?fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%3DFailed ") {
		t.Errorf("the request is %s", got)
	}
}

// TestEmptyNotOlderThanReadsFromAPIServer: "" is the resourceVersion of an object that was not read from the cluster.
func TestEmptyNotOlderThanReadsFromAPIServer(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	c = with(t, c, func(config *client.Config) { config.Informers = shows(databases(true, "*")) })
	if _, err := client.Get[*appsv1.StatefulSet](t.Context(), c, kube.KeyOf(database()), client.NotOlderThan("")); err != nil {
		t.Error(err)
	}
	if got := server.log(); !cmp.Equal(got, []string{"GET " + databasePath}) {
		t.Errorf("the requests are %q", got)
	}
}
