package compat_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/compat"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	all    = "/apis/apps/v1/namespaces/shop/deployments"
	one    = all + "/web"
	status = one + "/status"
)

func web() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
}

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// dynamic returns the Deployment web without its Go type.
func dynamic() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	u.SetNamespace("shop")
	u.SetName("web")
	return u
}

// connect returns a server of Deployments, which has web if exists is true, and a client.
func connect(t *testing.T, exists bool) (*apitest.Server, *client.Client) {
	t.Helper()
	server := apitest.New(apitest.Deployments())
	cluster, err := kube.Connect(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	if exists {
		server.Edit("deployments", webKey(), "user", func(obj map[string]any) bool {
			obj["spec"] = map[string]any{"replicas": int64(3)}
			return true
		})
	}
	return server, c
}

// DeepCopy of an unstructured object panics for an int.
func TestUnstructuredObjectWithInt(t *testing.T) {
	t.Parallel()
	_, c := connect(t, false)
	u := dynamic()
	u.Object["spec"] = map[string]any{"replicas": 3}
	written, err := compat.CreateOrUpdate(t.Context(), c, u, func(u *unstructured.Unstructured) error {
		u.Object["spec"] = map[string]any{"replicas": 4}
		return nil
	})
	if replicas, _, _ := unstructured.NestedInt64(written.Object.Object, "spec", "replicas"); err != nil || replicas != 4 {
		t.Errorf("%v; %v", err, written.Object)
	}
}

// Another request may have dropped the discovery because of a missing kind.
func TestStatusIsWrittenAfterKindsAreForgotten(t *testing.T) {
	t.Parallel()
	server, c := connect(t, true)
	written, err := compat.CreateOrPatch(t.Context(), c, web(), func(web *appsv1.Deployment) error {
		web.Status.Replicas = 5
		c.Cluster().Forget(appsv1.SchemeGroupVersion)
		return nil
	})
	if err != nil || written.Object.Status.Replicas != 5 {
		t.Errorf("%v; %+v", err, written)
	}
	if diff := cmp.Diff([]string{"GET " + one, "PATCH " + status}, server.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// Callers use unstructured objects to keep fields that a Go type lacks. An informer of the Go type must not answer then,
// unless nothing changes.
func TestUpdateReadsObjectOfAnotherTypeThanInformers(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(cluster *kube.Cluster) (informer.Any, error){
		"typed": func(cluster *kube.Cluster) (informer.Any, error) {
			return informer.New(informer.Config[*appsv1.Deployment]{Retriever: informer.Retrieve[*appsv1.Deployment](cluster)})
		},
		"unstructured": func(cluster *kube.Cluster) (informer.Any, error) {
			return informer.New(informer.Config[*unstructured.Unstructured]{
				Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: dynamic().GroupVersionKind()}),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, c := connect(t, true)
				objects, err := open(c.Cluster())
				if err != nil {
					t.Fatal(err)
				}
				defer objects.Join(t.Context())()
				if err := objects.WaitSynced(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c, err = c.With(func(config *client.Config) { config.Informers = []client.Informer{objects} }); err != nil {
					t.Fatal(err)
				}
				writes := func() (made []string) {
					for _, request := range server.Requests() {
						if strings.Contains(request, one) {
							made = append(made, request)
						}
					}
					return made
				}
				label := func(value string) {
					t.Helper()
					if _, err := compat.CreateOrUpdate(t.Context(), c, dynamic(), func(u *unstructured.Unstructured) error {
						if value != "" {
							u.SetLabels(map[string]string{"app": value})
						}
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
				label("")
				if made := writes(); len(made) > 0 {
					t.Errorf("requests without a change: %q", made)
				}
				label("web")
				want := []string{"GET " + one, "PUT " + one}
				if name == "unstructured" {
					want = want[1:]
				}
				if diff := cmp.Diff(want, writes()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// If another client writes the object between the two requests, the status is patched again, and the outcome stays
// Created.
func TestCreateOrPatchWritesStatusOfNewObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write    bool
		requests []string
	}{
		"no other client": {false, []string{"GET " + one, "POST " + all, "PATCH " + status}},
		"another client":  {true, []string{"GET " + one, "POST " + all, "PATCH " + status, "GET " + one, "PATCH " + status}},
	} {
		server, c := connect(t, false)
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if test.write && req.Method == http.MethodPatch {
				test.write = false
				server.Edit("deployments", webKey(), "other", func(obj map[string]any) bool {
					(&unstructured.Unstructured{Object: obj}).SetLabels(map[string]string{"theirs": "1"})
					return true
				})
			}
			return do(), nil
		})
		written, err := compat.CreateOrPatch(t.Context(), c, web(), func(web *appsv1.Deployment) error {
			web.Status.Replicas = 3
			return nil
		})
		if err != nil || written.Outcome != client.Created || !written.StatusUpdated || written.Changed != nil || written.Object.Status.Replicas != 3 {
			t.Errorf("%s: %v; %+v", name, err, written)
		}
		if diff := cmp.Diff(test.requests, server.Requests()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
}

// Otherwise mutate would be called with a part of the object.
func TestCreateOrUpdateOfObjectThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	_, c := connect(t, false)
	broken := dynamic()
	broken.Object["spec"] = func() {}
	_, err := compat.CreateOrUpdate(t.Context(), c, broken, func(u *unstructured.Unstructured) error {
		t.Errorf("mutate was called with %v", u)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "encode the object") {
		t.Errorf("the error is %v", err)
	}
}

// Otherwise every run would send a merge patch for the null.
func TestNullEqualsMissingFieldInMergePatch(t *testing.T) {
	t.Parallel()
	server, c := connect(t, true)
	written, err := compat.CreateOrPatch(t.Context(), c, dynamic(), func(u *unstructured.Unstructured) error {
		u.Object["spec"].(map[string]any)["paused"] = nil
		u.Object["missing"] = nil
		return nil
	})
	if requests := server.Requests(); err != nil || written.Outcome != client.Unchanged || !cmp.Equal(requests, []string{"GET " + one}) {
		t.Errorf("it is %s: %v; the requests are %q", written.Outcome, err, requests)
	}
}
