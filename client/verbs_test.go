package client_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

func widgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Widget"}
}

// echo returns the object of the request, or an empty one.
func echo(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if len(body) == 0 || r.Method == http.MethodPatch || r.Method == http.MethodDelete {
		body = []byte(`{"metadata":{"name":"answered"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return true
}

func with(t *testing.T, c *client.Client, change func(*client.Config)) *client.Client {
	t.Helper()
	other, err := c.With(change)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func TestRequestsOfTheVerbs(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	const (
		pods    = "/api/v1/namespaces/shop/pods"
		podBody = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"shop"},"spec":{"containers":null},"status":{}}`
		all     = "dryRun=All&fieldManager=me&fieldValidation=Strict"
	)
	updateOptions := []client.WriteOption{client.DryRun(), client.FieldOwner("me"), client.FieldValidation(metav1.FieldValidationStrict)}
	options := []client.WriteOption{client.DryRun(), client.FieldOwner("me"), client.FieldValidation(metav1.FieldValidationStrict)}
	for name, test := range map[string]struct {
		do   func(c *client.Client) error
		want string
	}{
		"get": {
			func(c *client.Client) error {
				_, err := client.Get[*corev1.Node](t.Context(), c, kube.Key{Name: "n1"}, client.NotOlderThan("0"))
				return err
			}, "GET /api/v1/nodes/n1?resourceVersion=0",
		},
		"get the status": {
			func(c *client.Client) error {
				_, err := client.Get[*appsv1.StatefulSet](t.Context(), c, kube.Key{Namespace: "shop", Name: "db"}, client.Subresource("status"))
				return err
			}, "GET " + databasePath + "/status",
		},
		"list": {
			func(c *client.Client) error {
				_, err := client.All[*corev1.Pod](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "a=b,c!=d", FieldSelector: "spec.nodeName=n1"}, client.PageSize(2))
				return err
			}, "GET " + pods + "?fieldSelector=spec.nodeName%3Dn1&labelSelector=a%3Db%2Cc%21%3Dd&limit=2",
		},
		"list without pages": {
			func(c *client.Client) error {
				_, err := client.All[*corev1.Pod](t.Context(), c, kube.Selection{}, client.PageSize(0), client.NotOlderThan("5"))
				return err
			}, "GET /api/v1/pods?resourceVersion=5&resourceVersionMatch=NotOlderThan",
		},
		"create": {
			func(c *client.Client) error { _, err := client.Create(t.Context(), c, pod, options...); return err },
			"POST " + pods + "?" + all + " " + podBody,
		},
		"create with a generated name": {
			func(c *client.Client) error {
				_, err := client.Create(t.Context(), c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "p-"}})
				return err
			}, "POST " + pods + " " + strings.Replace(podBody, `"name":"p"`, `"generateName":"p-"`, 1),
		},
		"create of half a kind": {
			func(c *client.Client) error {
				half := pod.DeepCopy()
				half.Kind = "Pod"
				_, err := client.Create(t.Context(), c, half)
				return err
			}, "POST " + pods + " " + podBody,
		},
		"update": {
			func(c *client.Client) error {
				_, err := client.Update(t.Context(), c, pod, updateOptions...)
				return err
			},
			"PUT " + pods + "/p?" + all + " " + podBody,
		},
		"update of the status": {
			func(c *client.Client) error {
				_, err := client.Update(t.Context(), c, pod, client.Subresource("status"))
				return err
			}, "PUT " + pods + "/p/status " + podBody,
		},
		"update of what has no Go type": {
			func(c *client.Client) error { _, err := client.Update(t.Context(), c, widget()); return err },
			"PUT " + widgetPath + ` {"apiVersion":"shop.example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","resourceVersion":"7","uid":"u1"},"spec":{"size":3}}`,
		},
		"patch": {
			func(c *client.Client) error {
				changed := pod.DeepCopy()
				changed.Labels = map[string]string{"a": "b"}
				_, err := client.Patch(t.Context(), c, pod, client.MergeFrom(pod, changed), updateOptions...)
				return err
			}, "PATCH " + pods + "/p?" + all + ` {"metadata":{"labels":{"a":"b"}}}`,
		},
		"evict": {
			func(c *client.Client) error {
				_, err := client.Create(t.Context(), c, &policyv1.Eviction{}, client.SubresourceOf(pod, "eviction"), client.DryRun())
				return err
			}, "POST " + pods + `/p/eviction?dryRun=All {"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"p","namespace":"shop"}}`,
		},
		"scale by a patch": {
			func(c *client.Client) error {
				_, err := client.Patch[*autoscalingv1.Scale](t.Context(), c, nil, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)), client.SubresourceOf(database(), "scale"))
				return err
			}, "PATCH " + databasePath + `/scale {"spec":{"replicas":2}}`,
		},
		"delete what was read": {
			func(c *client.Client) error { return client.Delete(t.Context(), c, database()) },
			"DELETE " + databasePath + ` {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u1"}}`,
		},
		"delete if unchanged": {
			func(c *client.Client) error {
				return client.Delete(t.Context(), c, database(), client.IfUnchanged(), client.GracePeriod(2*time.Second), client.DryRun())
			},
			"DELETE " + databasePath + ` {"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":2,"preconditions":{"uid":"u1","resourceVersion":"7"},"dryRun":["All"]}`,
		},
		"delete all": {
			func(c *client.Client) error {
				return client.DeleteAllOf[*corev1.Pod](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "a=b"}, client.Propagation(metav1.DeletePropagationForeground))
			},
			"DELETE " + pods + `?labelSelector=a%3Db {"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.handle = echo
			err := test.do(c)
			if (err == nil) != (test.want != "") {
				t.Fatal(err)
			}
			if got := strings.Join(server.log(), "\n"); got != test.want {
				t.Errorf("the request is (-want +got):\n%s", cmp.Diff(test.want, got))
			}
		})
	}
}

// TestConfigAppliesToAllRequests: the settings in Config are part of every write and of no read.
func TestConfigAppliesToAllRequests(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = echo
	c = with(t, c, func(config *client.Config) {
		config.DryRun, config.FieldOwner, config.FieldValidation, config.Namespace = true, "me", metav1.FieldValidationStrict, "shop"
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	_, err := client.Get[*corev1.Pod](t.Context(), c, kube.Key{Name: "p"})
	_, err1 := client.All[*corev1.Pod](t.Context(), c, kube.Selection{})
	_, err2 := client.Create(t.Context(), c, pod)
	_, err3 := client.Update(t.Context(), c, pod, client.FieldOwner("you"))
	_, err4 := client.Patch(t.Context(), c, pod, client.RawPatch(types.MergePatchType, []byte(`{"a":1}`)))
	_, err5 := client.Create(t.Context(), c, &corev1.Binding{}, client.SubresourceOf(pod, "binding"))
	err = errors.Join(err, err1, err2, err3, err4, err5,
		client.Delete(t.Context(), c, pod),
		client.DeleteAllOf[*corev1.Pod](t.Context(), c, kube.Selection{LabelSelector: "a=b"}),
		client.ScaleLive(t.Context(), c, func() *appsv1.StatefulSet { d := database(); d.Name = "answered"; d.UID = ""; return d }(), 1, nil))
	if err == nil || !strings.Contains(err.Error(), "has no uid") || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	const all = "dryRun=All&fieldManager=me&fieldValidation=Strict"
	for i, want := range []string{
		"GET /api/v1/namespaces/shop/pods/p", "GET /api/v1/namespaces/shop/pods?limit=500",
		"POST /api/v1/namespaces/shop/pods?" + all, "PUT /api/v1/namespaces/shop/pods/p?" + strings.Replace(all, "me", "you", 1),
		"PATCH /api/v1/namespaces/shop/pods/p?" + all, "POST /api/v1/namespaces/shop/pods/p/binding?" + all,
		"DELETE /api/v1/namespaces/shop/pods/p", "DELETE /api/v1/namespaces/shop/pods?labelSelector=a%3Db",
	} {
		got := server.log()[i]
		if request, _, _ := strings.Cut(got, " {"); request != want {
			t.Errorf("request %d is %s, want %s", i, got, want)
		}
		if strings.HasPrefix(got, "POST") && !strings.Contains(got, `"namespace":"shop"`) || strings.HasPrefix(got, "DELETE") && !strings.Contains(got, `"dryRun":["All"]`) {
			t.Errorf("the body is wrong: %s", got)
		}
	}
	if pod.Namespace != "" {
		t.Error("an argument was changed")
	}
}
