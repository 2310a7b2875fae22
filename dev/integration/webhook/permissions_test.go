package webhook

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// A user with the roles of a server keeps certificates, and registers hooks and conversions. The roles of the example are
// those in docs/webhooks.md.
func TestRolesSuffice(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	g.deleteConfigurations()
	administrator := g.client
	config := rest.CopyConfig(local.RESTConfig())
	config.Impersonate.UserName = "webhook-server-" + g.namespace
	g.cluster = clustertest.Connect(t, config, g.addTypes)
	g.client = clustertest.Client(t, g.cluster)
	allow := func(context.Context, *mapRequest) error { return nil }
	hooks := []webhook.Hook{webhook.Validating(g.options("permitted"), allow), webhook.Mutating(g.options("permitted-too"), allow), g.hook()}
	certificatesOf := &webhook.Certificates{Client: g.client, Secret: g.secret, Register: g.namespace, URL: g.url}
	server, err := webhook.New(webhook.Config{Cluster: g.cluster, Hooks: hooks, Listener: g.listener, Certificates: certificatesOf})
	if err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: config.Impersonate.UserName}}
	meta := metav1.ObjectMeta{Namespace: g.namespace, Name: g.namespace}
	objects := append(server.Roles(g.namespace),
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: g.namespace}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.namespace}})
	for _, obj := range objects {
		if _, err := client.Apply(t.Context(), administrator, obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Delete(context.WithoutCancel(t.Context()), administrator, obj); err != nil {
				t.Error(err)
			}
		})
	}
	g.client = administrator
	g.install(server)
	g.runKeeping(rotating, server)
	clustertest.Eventually(t, func() string { return clustertest.Text(server.Ready()) })
	g.awaitConversions()
	// The rotations update the Secret.
	stored := func() string {
		current, err := client.Get[*corev1.Secret](t.Context(), administrator, g.secret)
		if err != nil {
			t.Fatal(err)
		}
		return string(current.Data["tls.crt"])
	}
	first := stored()
	clustertest.Eventually(t, func() string {
		if stored() == first {
			return "the certificate is not replaced: " + clustertest.Text(server.Ready())
		}
		return ""
	})
}

// The roles in docs/webhooks.md are those of examples/webhook.
func TestDocumentedRoles(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	page, err := os.ReadFile("../../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	manifest, _, _ := strings.Cut(block, "```")
	roleText, clusterRoleText, ok := strings.Cut(manifest, "---\n")
	if !ok {
		t.Fatalf("the page has no two roles:\n%s", manifest)
	}
	role, clusterRole := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := errors.Join(yaml.Unmarshal([]byte(roleText), &role.Object), yaml.Unmarshal([]byte(clusterRoleText), &clusterRole.Object)); err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Config{
		Cluster: e.cluster, Hooks: []webhook.Hook{webhook.Validating(e.options("example"), func(context.Context, *mapRequest) error { return nil })}, Listen: ":0",
		Certificates: &webhook.Certificates{
			Client: e.client, Secret: kube.Key{Namespace: "default", Name: "webhook-example-tls"}, Register: "webhook-example", URL: "https://127.0.0.1:9443",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kube.Object{clusterRole, role}, server.Roles("webhook-example")); diff != "" {
		t.Errorf("the roles (-page +server):\n%s", diff)
	}
}
