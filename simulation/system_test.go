package simulation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func names[T kube.Object](t *testing.T, c *simulation.Cluster) string {
	t.Helper()
	all, err := client.All[T](t.Context(), c.Client(), kube.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, obj := range all {
		keys = append(keys, kube.KeyOf(obj).String())
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// The API server creates some objects in each cluster, and the controllers some more in each namespace.
func TestObjectsOfEachCluster(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{false, true} {
		t.Run(fmt.Sprintf("without controllers %t", without), func(t *testing.T) {
			t.Parallel()
			config := simulation.Config{WithoutControllers: without, Namespaces: []string{"shop"}, YAML: "{apiVersion: v1, kind: Namespace, metadata: {name: from-yaml}}"}
			simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
				c.Settle()
				accounts, configs := "", "kube-system/extension-apiserver-authentication"
				if !without {
					var each []string
					for _, namespace := range []string{"default", "from-yaml", "kube-node-lease", "kube-public", "kube-system", "shop"} {
						accounts += " " + namespace + "/default"
						each = append(each, namespace+"/kube-root-ca.crt")
					}
					each = append(each, configs)
					slices.Sort(each)
					accounts, configs = strings.TrimSpace(accounts), strings.Join(each, " ")
				}
				got := []string{
					names[*corev1.Service](t, c), names[*schedulingv1.PriorityClass](t, c), names[*rbacv1.ClusterRole](t, c), names[*rbacv1.ClusterRoleBinding](t, c),
					names[*rbacv1.Role](t, c), names[*corev1.ServiceAccount](t, c), names[*corev1.ConfigMap](t, c),
				}
				want := []string{
					"default/kubernetes", "system-cluster-critical system-node-critical", "admin cluster-admin edit system:auth-delegator system:basic-user view", "cluster-admin system:basic-user",
					"kube-system/extension-apiserver-authentication-reader", accounts, configs,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if prepared := c.Record(func() { c.Advance(time.Minute) }).Writes(); len(prepared) > 0 {
					t.Errorf("writes of the models:\n%s", prepared)
				}
			})
		})
	}
}

// A later namespace gets its objects too, and gets them again while it exists.
func TestObjectsOfLaterNamespaces(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
		c.Settle()
		certificate := simulation.Get[*corev1.ConfigMap](c, "shop/kube-root-ca.crt").Data["ca.crt"]
		first := simulation.Get[*corev1.ServiceAccount](c, "shop/default").UID
		simulation.Delete[*corev1.ServiceAccount](c, "shop/default")
		simulation.Edit(c, "shop/kube-root-ca.crt", "", func(cm *corev1.ConfigMap) { cm.Data = nil })
		c.Settle()
		if again := simulation.Get[*corev1.ServiceAccount](c, "shop/default").UID; again == first {
			t.Error("the deleted service account was not replaced")
		}
		if again := simulation.Get[*corev1.ConfigMap](c, "shop/kube-root-ca.crt").Data["ca.crt"]; again != certificate || certificate == "" {
			t.Errorf("the certificate %q was not restored: %q", certificate, again)
		}
		simulation.Delete[*corev1.Namespace](c, "shop")
		c.Settle()
		simulation.ExpectGone[*corev1.Namespace](c, "shop")
	})
}

// The names of kinds without other rules are checked as in the real server; simulation/conformance compares all kinds.
func TestInvalidNamesAreRejected(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		inDefault := metav1.ObjectMeta{Namespace: "default"}
		for _, test := range []struct {
			obj   kube.Object
			name  string
			valid bool
		}{
			{&networkingv1.Ingress{ObjectMeta: inDefault}, "Bad_Name", false},
			{&networkingv1.Ingress{ObjectMeta: inDefault}, "good.name", true},
			{&batchv1.CronJob{ObjectMeta: inDefault}, strings.Repeat("n", 53), false},
			{&rbacv1.ClusterRole{}, "system:Any_Name", true},
			{&admissionregistrationv1.ValidatingWebhookConfiguration{}, "Bad_Name", false},
		} {
			test.obj.SetName(test.name)
			if _, err := client.Create(t.Context(), c.Client(), test.obj); apierrors.IsInvalid(err) == test.valid {
				t.Errorf("create %T %s: %v", test.obj, test.name, err)
			}
		}
	})
}
