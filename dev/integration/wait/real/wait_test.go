package wait

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// patience is the maximum duration of the waits in these tests, for slow machines.
func patience() client.WaitOption { return client.Timeout(2 * time.Minute) }

func TestDaemonSet(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	labels := map[string]string{"app": "agent"}
	clustertest.Must(client.Create(t.Context(), e.Client, &appsv1.DaemonSet{ObjectMeta: e.Meta("agent"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: clustertest.PodTemplate(labels),
	}}))(e)
	daemons := clustertest.Must(client.WaitFor[*appsv1.DaemonSet](t.Context(), e.Client, e.Key("agent"), readiness.Of, patience()))(e)
	if daemons.Status.NumberAvailable != 1 {
		t.Errorf("the DaemonSet's status is %+v", daemons.Status)
	}
}

// A Role may permit the caller to read only this object. Without a Role the wait ends at once.
func TestWaitWithRoleForOneObject(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	config, err := local.User(t.Context(), "waiter-"+e.Namespace, "waiters")
	if err != nil {
		t.Fatal(err)
	}
	waiter := clustertest.Client(t, clustertest.Connect(t, config))
	began := time.Now()
	_, err = client.WaitFor[*corev1.ConfigMap](t.Context(), waiter, e.Key("mine"), readiness.Of, patience())
	if !apierrors.IsForbidden(err) || time.Since(began) > time.Minute {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	clustertest.Must(client.Create(t.Context(), e.Client, &rbacv1.Role{ObjectMeta: e.Meta("waiter"), Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"mine"}, Verbs: []string{"list", "watch"},
	}}}))(e)
	clustertest.Must(client.Create(t.Context(), e.Client, &rbacv1.RoleBinding{
		ObjectMeta: e.Meta("waiter"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "waiter"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "waiter-" + e.Namespace}},
	}))(e)
	clustertest.Eventually(t, func() string { // the authorizer is a little behind
		_, err := client.All[*corev1.ConfigMap](t.Context(), waiter, kube.Selection{Namespaces: []string{e.Namespace}, FieldSelector: "metadata.name=mine"})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	ended := make(chan error, 1)
	go func() { // waited for below
		_, err := client.WaitFor[*corev1.ConfigMap](t.Context(), waiter, e.Key("mine"), readiness.Of, patience())
		ended <- err
	}()
	clustertest.Must(client.Create(t.Context(), e.Client, &corev1.ConfigMap{ObjectMeta: e.Meta("mine")}))(e)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_, err = client.WaitFor[*corev1.ConfigMap](t.Context(), waiter, e.Key("other"), readiness.Of, patience())
	if !apierrors.IsForbidden(err) {
		t.Errorf("another object: %v", err)
	}
}

// Not parallel: it stops the API server.
func TestWaitForContinuesAfterServerRestart(t *testing.T) {
	if local.Existing() {
		t.Skip("the cluster is not ours to restart")
	}
	e := newEnv(t)
	clustertest.Must(client.Create(t.Context(), e.Client, &corev1.ConfigMap{ObjectMeta: e.Meta("a")}))(e)
	hasData := readiness.When("it has no data", func(obj *corev1.ConfigMap) bool { return obj.Data["a"] == "b" })
	type result struct {
		obj *corev1.ConfigMap
		err error
	}
	ended := make(chan result, 1)
	go func() { // waited for below
		obj, err := client.WaitFor[*corev1.ConfigMap](t.Context(), e.Client, e.Key("a"), hasData, patience())
		ended <- result{obj, err}
	}()
	if err := local.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := local.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() string {
		_, err := client.Update(t.Context(), e.Client, &corev1.ConfigMap{ObjectMeta: e.Meta("a"), Data: map[string]string{"a": "b"}})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	if got := <-ended; got.err != nil || got.obj.Data["a"] != "b" {
		t.Errorf("waited for %v: %v", got.obj, got.err)
	}
}
