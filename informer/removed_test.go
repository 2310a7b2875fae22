package informer_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// answering is a server in front of which answer may answer requests: with a body, or with status 404 if it is empty.
type answering struct {
	http.RoundTripper
	answer atomic.Pointer[func(path string) (body string, answered bool)]
}

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := a.answer.Load()
	if answer == nil {
		return a.RoundTripper.RoundTrip(req)
	}
	body, answered := (*answer)(req.URL.Path)
	if !answered {
		return a.RoundTripper.RoundTrip(req)
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req}
	if body == "" {
		resp.StatusCode, body = http.StatusNotFound, "<html>not found</html>"
		resp.Header.Set("Content-Type", "text/html")
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp, nil
}

const (
	noGroups   = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
	onlyAppsV2 = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v2","version":"v2"}]}]}`
	appsV2     = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v2","resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`
	noAppsV2   = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v2","resources":[{"name":"pets","kind":"Pet","namespaced":true}]}`
)

// One 404 does not empty an optional informer: only a discovery that repeatedly contains no version of the kind does.
// Until then reads return an error that is not a 404.
func TestOptionalInformerKeepsObjectsUntilKindIsRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		discovery map[string]string // by path; other paths answer 404
		outage    time.Duration
		removed   bool
	}{
		"a load balancer's page":             {outage: time.Hour},
		"served in another version":          {discovery: map[string]string{"/apis": onlyAppsV2, "/apis/apps/v2": appsV2}, outage: time.Hour},
		"the other version is unknown":       {discovery: map[string]string{"/apis": onlyAppsV2}, outage: time.Hour},
		"no group for a moment":              {discovery: map[string]string{"/apis": noGroups}, outage: 30 * time.Second},
		"no group":                           {discovery: map[string]string{"/apis": noGroups}, outage: 2 * time.Minute, removed: true},
		"the other version has no such kind": {discovery: map[string]string{"/apis": onlyAppsV2, "/apis/apps/v2": noAppsV2}, outage: 2 * time.Minute, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apitest.New(apitest.Deployments())
				server.Edit("deployments", key("a"), "somebody", func(map[string]any) bool { return true })
				config := server.Config("tests")
				front := &answering{RoundTripper: config.Transport}
				config.Transport = front
				objects, stop := runOptional(t, config)
				defer stop()
				l := &deletions{}
				defer objects.Subscribe(l.notify)()
				l.lines = nil
				front.answer.Store(new(func(path string) (string, bool) { return test.discovery[path], true }))
				server.Break("deployments", false)
				time.Sleep(test.outage)
				_, found, err := objects.Get(key("a"))
				if test.removed {
					l.expect(t, "deleted a")
					if found || err != nil {
						t.Errorf("read after the removal: %t, %v", found, err)
					}
				} else {
					l.expect(t)
					if err == nil || apierrors.IsNotFound(err) || retry.Classify(err) != retry.Transient || objects.Len() != 1 {
						t.Errorf("read: %t, %v; %d objects", found, err, objects.Len())
					}
					for _, err := range objects.List(informer.Query{}) {
						if err == nil {
							t.Error("a list returned an object without an error")
						}
					}
				}
				if h := objects.Health(); !h.Degraded || h.Err == nil {
					t.Errorf("health: %+v", h)
				}
				front.answer.Store(nil)
				time.Sleep(time.Minute)
				if test.removed {
					l.expect(t, "added a")
				} else {
					l.expect(t)
				}
				if _, found, err := objects.Get(key("a")); !found || err != nil {
					t.Errorf("read when it is back: %t, %v", found, err)
				}
			})
		})
	}
}

// runOptional runs an optional informer of Deployments until stop, and returns it when it is synced.
func runOptional(t *testing.T, config *rest.Config) (objects *informer.Informer[*appsv1.Deployment], stop func()) {
	t.Helper()
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err = informer.New(informer.Config[*appsv1.Deployment]{Retriever: informer.Retrieve[*appsv1.Deployment](cluster), Optional: true})
	if err != nil {
		t.Fatal(err)
	}
	stop = objects.Join(t.Context())
	if err := objects.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return objects, stop
}

// An optional informer whose kind is missing at its start is empty at once if the discovery confirms that.
func TestOptionalInformerAtStart(t *testing.T) {
	for name, groups := range map[string]string{"confirmed": noGroups, "not confirmed": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				front := &answering{}
				front.answer.Store(new(func(path string) (string, bool) {
					if path == "/apis" {
						return groups, true
					}
					return "", true
				}))
				config := apitest.New(apitest.Deployments()).Config("tests")
				config.Transport = front
				objects, stop := runOptional(t, config)
				defer stop()
				if diff := cmp.Diff(groups == "", func() bool { _, _, err := objects.Get(key("a")); return err != nil }()); diff != "" {
					t.Errorf("an error of a read (-want +got):\n%s", diff)
				}
			})
		})
	}
}
