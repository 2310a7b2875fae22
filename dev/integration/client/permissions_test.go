package client

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestForbiddenRequests: both servers check the roles of an impersonated account, and name what it lacks.
func TestForbiddenRequests(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		config, c, namespace := setUp(t)
		object := metav1.ObjectMeta{Namespace: namespace, Name: "account"}
		must(client.Create(t.Context(), c, &rbacv1.Role{ObjectMeta: object, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "patch"}, ResourceNames: []string{"own"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}, ResourceNames: []string{"own"}},
			{APIGroups: []string{"apps"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		}}))(t)
		must(client.Create(t.Context(), c, &rbacv1.RoleBinding{
			ObjectMeta: object, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "account"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "account"}},
		}))(t)
		must(client.Create(t.Context(), c, configMap(namespace, "own", nil)))(t)
		user := "system:serviceaccount:" + namespace + ":account"
		account := rest.CopyConfig(config)
		account.Impersonate = rest.ImpersonationConfig{UserName: user}
		limited := clustertest.Client(t, clustertest.Connect(t, account))
		clients, err := kubernetes.NewForConfig(account)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		// The real server sees a new role after some milliseconds.
		clustertest.Eventually(t, func() string {
			_, err := client.Get[*corev1.ConfigMap](ctx, limited, kube.Key{Namespace: namespace, Name: "own"})
			return textOf(err)
		})
		apply := func(name string) error {
			_, err := client.Apply(ctx, limited, configMap(namespace, name, map[string]string{"k": "v"}))
			return err
		}
		for name, test := range map[string]struct {
			err  error
			want string // empty: permitted
		}{
			"get by name": {func() error {
				_, err := clients.CoreV1().ConfigMaps(namespace).Get(ctx, "own", metav1.GetOptions{})
				return err
			}(), ""},
			"apply of an object": {apply("own"), ""},
			"list of one name": {func() error {
				_, err := clients.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=own"})
				return err
			}(), ""},
			"a subresource of any resource": {func() error {
				_, err := clients.AppsV1().Deployments(namespace).GetScale(ctx, "none", metav1.GetOptions{})
				return client.IgnoreNotFound(err)
			}(), ""},
			"get of another name": {func() error {
				_, err := clients.CoreV1().ConfigMaps(namespace).Get(ctx, "other", metav1.GetOptions{})
				return err
			}(), `configmaps "other" is forbidden: User "USER" cannot get resource "configmaps" in API group "" in the namespace "NAMESPACE"`},
			"list": {func() error {
				_, err := clients.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
				return err
			}(), `secrets is forbidden: User "USER" cannot list resource "secrets" in API group "" in the namespace "NAMESPACE"`},
			"watch in all namespaces": {func() error {
				_, err := clients.AppsV1().Deployments("").Watch(ctx, metav1.ListOptions{})
				return err
			}(), `deployments.apps is forbidden: User "USER" cannot watch resource "deployments" in API group "apps" at the cluster scope`},
			"subresource": {func() error {
				_, err := clients.CoreV1().Pods(namespace).Patch(ctx, "x", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{}, "status")
				return err
			}(), `pods "x" is forbidden: User "USER" cannot patch resource "pods/status" in API group "" in the namespace "NAMESPACE"`},
			"its own namespace": {func() error {
				_, err := clients.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
				return err
			}(), `namespaces "NAMESPACE" is forbidden: User "USER" cannot get resource "namespaces" in API group "" in the namespace "NAMESPACE"`},
			"a resource that does not exist": {func() error {
				return clients.CoreV1().RESTClient().Get().AbsPath("/apis/none.example.com/v1/things").Do(ctx).Error()
			}(), `things.none.example.com is forbidden: User "USER" cannot list resource "things" in API group "none.example.com" at the cluster scope`},
		} {
			want := strings.NewReplacer("USER", user, "NAMESPACE", namespace).Replace(test.want)
			switch {
			case want == "" && test.err != nil:
				t.Errorf("%s: %v", name, test.err)
			case want != "" && (!apierrors.IsForbidden(test.err) || test.err.Error() != want):
				t.Errorf("%s:\n%v, want\n%s", name, test.err, want)
			}
		}
		// An apply that creates needs both verbs.
		must(client.Patch(ctx, c, &rbacv1.Role{ObjectMeta: object}, client.RawPatch("application/merge-patch+json",
			[]byte(`{"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","patch"]}]}`))))(t)
		want := `configmaps "new" is forbidden: User "` + user + `" cannot create resource "configmaps" in API group "" in the namespace "` + namespace + `"`
		clustertest.Eventually(t, func() string {
			if got := textOf(apply("new")); !strings.Contains(got, want) {
				return "an apply that creates: " + got + ", want " + want
			}
			return ""
		})
	})
}

// textOf returns the text of an error, "" without one.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
