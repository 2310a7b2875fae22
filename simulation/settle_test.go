package simulation_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Leader election writes a Lease every two seconds, also while everything is idle.
func TestLeaseRenewalsDoNotDelayIdle(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: motto}, func(t *testing.T, c *simulation.Cluster) {
		elector, err := leader.New(leader.Config{Cluster: c.Connect("elector"), Namespace: "default", Name: "lease"})
		if err != nil {
			t.Fatal(err)
		}
		c.Go("elector", func(ctx context.Context) error {
			return elector.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err() // of a stopped program: not a failure
			})
		})
		requests := c.Record(func() {
			c.Settle()
			c.Advance(time.Minute)
		})
		if writes := requests.Writes(); len(writes) > 0 {
			t.Errorf("writes:\n%s", writes)
		}
		if len(requests.By("elector")) < 20 {
			t.Errorf("the elector made few requests:\n%s", requests)
		}
	})
}

func TestSettleWaitsForSlowRequestsAndPods(t *testing.T) {
	t.Parallel()
	config := simulation.Config{Pods: func(*corev1.Pod) simulation.PodBehavior { return simulation.PodBehavior{ReadyAfter: 4 * time.Second} }}
	simulation.Test(t, config, func(_ *testing.T, c *simulation.Cluster) {
		c.Intercept(func(r simulation.Request, _ func()) error {
			if r.UserAgent == "slow" {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		slow, err := client.New(client.Config{Cluster: c.Connect("slow")})
		if err != nil {
			t.Fatal(err)
		}
		c.Go("slow", func(ctx context.Context) error {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
			_, err := client.Create(ctx, slow, cm)
			return err
		})
		c.Settle()
		simulation.Get[*corev1.ConfigMap](c, "default/late")

		c.Apply(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, replicas: 1,
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`)
		c.Settle()
		c.Expect(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, status: {readyReplicas: 1}}`)
	})
}

// Objects of custom resources may stand before their definitions.
func TestManifestOrder(t *testing.T) {
	t.Parallel()
	config := simulation.Config{YAML: `
apiVersion: example.com/v1
kind: Widget
metadata: {name: first}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object,
       default: {}, properties: {size: {type: integer, default: 3}}}}}}}
`}
	simulation.Test(t, config, func(_ *testing.T, c *simulation.Cluster) {
		c.Expect(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: first}, spec: {size: 3}}`)
	})
}

// The objects that exist when a test begins have the time of its cluster, whichever test prepared them.
func TestTimeOfPreparedObjects(t *testing.T) {
	t.Parallel()
	created := func(tb testing.TB) time.Duration {
		tb.Helper()
		return time.Since(simulation.Get[*corev1.Namespace](simulation.New(tb, simulation.Config{Namespaces: []string{"times"}}), "times").CreationTimestamp.Time)
	}
	simulation.Test(t, simulation.Config{}, func(t *testing.T, _ *simulation.Cluster) {
		if age := created(t); age < 0 || age > time.Second {
			t.Errorf("the namespace is %v old in virtual time", age)
		}
	})
	if age := created(t); age < 0 || age > time.Hour {
		t.Errorf("the namespace is %v old in real time", age)
	}
}

// A watch can have the form of paths before the parameter watch.
func TestRecordOfUnusualPaths(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{WithoutControllers: true}, func(t *testing.T, c *simulation.Cluster) {
		requests := c.Record(func() {
			for _, path := range []string{"/api/v1/watch/namespaces/default/configmaps", "/api/v1/configmaps?watch", "/api/v1/namespaces/default/status"} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://simulation.invalid"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("User-Agent", "test")
				res, err := c.RESTConfig("test").Transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
			}
		})
		var got []string
		for _, r := range requests {
			got = append(got, r.String())
		}
		if want := []string{"test: watch configmaps default/", "test: watch configmaps", "test: get namespaces/status default"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Edit repeats the change if another client was faster, and an intercepted response can be replaced by a Status.
func TestEditOfChangedObject(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{YAML: motto}, func(t *testing.T, c *simulation.Cluster) {
		faster := 2
		c.Intercept(func(r simulation.Request, _ func()) error {
			if r.Verb == "update" && faster > 0 {
				faster--
				simulation.Edit(c, "default/motto", "", func(cm *corev1.ConfigMap) { cm.Data["by"] += "other " })
			}
			return nil
		})
		got := simulation.Edit(c, "default/motto", "", func(cm *corev1.ConfigMap) { cm.Data["by"] += "me" })
		if want := "other other me"; got.Data["by"] != want {
			t.Errorf("got %q, want %q", got.Data["by"], want)
		}
		remove := c.Intercept(func(_ simulation.Request, send func()) error {
			send()
			return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
		})
		err := client.Delete(t.Context(), c.Client(), got)
		if !apierrors.IsInternalError(err) {
			t.Errorf("the error is %v", err)
		}
		remove()
		simulation.ExpectGone[*corev1.ConfigMap](c, "default/motto")
	})
}
