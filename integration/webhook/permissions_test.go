package webhook

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// A user with the permissions of docs/webhooks.md keeps certificates, registers hooks, and restores what others delete.
func TestDocumentedPermissionsSuffice(t *testing.T) {
	e := newEnv(t)
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	manifest, _, _ := strings.Cut(block, "```")
	roleText, clusterRoleText, ok := strings.Cut(manifest, "---\n")
	if !ok {
		t.Fatalf("the page has no two roles:\n%s", manifest)
	}
	role, clusterRole := &rbacv1.Role{}, &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(roleText), role); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(clusterRoleText), clusterRole); err != nil {
		t.Fatal(err)
	}
	role.Namespace = e.namespace
	const user = "webhook-server"
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	roleBinding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: role.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	clusterRoleBinding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterRole.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name},
	}
	for _, obj := range []kube.Object{role, clusterRole, roleBinding, clusterRoleBinding} {
		if _, err := client.Apply(t.Context(), e.client, obj); err != nil {
			t.Fatal(err)
		}
		e.Cleanup(func() {
			if err := client.Delete(context.WithoutCancel(t.Context()), e.client, obj); err != nil {
				t.Error(err)
			}
		})
	}
	e.deleteConfigurations()

	config := rest.CopyConfig(local.RESTConfig())
	config.Impersonate.UserName = user
	administrator := e.client
	e.cluster = clustertest.Connect(t, config)
	e.client = clustertest.Client(t, e.cluster)
	listener := e.listen()
	secret := kube.Key{Namespace: e.namespace, Name: "webhook-example-tls"}
	server := e.startRotating(listener, "https://"+listener.Addr().String(), secret,
		webhook.Validating(e.options("permitted"), func(context.Context, *mapRequest) error { return nil }))
	clustertest.Eventually(t, func() string { return text(server.Ready()) })
	// The rotations update the Secret.
	stored := func() string {
		current, err := client.Get[*corev1.Secret](t.Context(), administrator, secret)
		if err != nil {
			t.Fatal(err)
		}
		return string(current.Data["tls.crt"])
	}
	first := stored()
	clustertest.Eventually(t, func() string {
		if stored() == first {
			return "the certificate is not replaced: " + text(server.Ready())
		}
		return ""
	})
	e.client = administrator
}
