package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/source"
)

// permit lets a user make requests for resources, with a Role in the namespace.
func (e env) permit(user string, rules ...rbacv1.PolicyRule) {
	e.Helper()
	must(e.clients.RbacV1().Roles(e.namespace).Create(e.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: rules,
	}, metav1.CreateOptions{}))(e.T)
	must(e.clients.RbacV1().RoleBindings(e.namespace).Create(e.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{}))(e.T)
}

// A program with --namespaces needs only Roles in them: for its objects, sources, children, lists and lease. A ClusterRole
// for Nodes lets it read them as a whole.
func TestSmokeRolesAreEnoughForNamespaces(t *testing.T) {
	t.Parallel()
	first, second, other := newEnv(t), newEnv(t), newEnv(t)
	user := "limited-" + first.namespace
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch"}},
	}
	second.permit(user, rules...)
	first.permit(user, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
	})...)
	must(first.clients.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{}))(t)
	must(first.clients.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{}))(t)
	for _, e := range []env{first, second, other} {
		must(e.clients.CoreV1().Secrets(e.namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
		}, metav1.CreateOptions{}))(t)
	}

	p := evenkeel.NewProgram("limited", "--kubeconfig", kubeconfigOf(t, user, first.namespace), "--listen=",
		"--namespaces="+first.namespace+","+second.namespace, "--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms")
	p.Manager.IgnoreSignals = true
	cluster := must(p.Connect())(t)
	nodes := must(informer.New(informer.Config[*corev1.Node]{Retriever: informer.Retrieve[*corev1.Node](cluster)}))(t)
	var listed atomic.Pointer[[]string]
	op := must(evenkeel.New(evenkeel.Config[*corev1.Secret]{
		Name: "limited", Cluster: cluster, Owns: []watched.Kind{watched.Of[*corev1.ConfigMap]()},
		Controller: controller.Config[*corev1.Secret]{
			Reads: []informer.Any{nodes}, Sources: []controller.Source{source.Owned[*corev1.Service](cluster)},
		},
		Handle: func(ctx context.Context, secret *corev1.Secret, run *evenkeel.Run) error {
			if _, err := nodes.Count(informer.Query{}); err != nil {
				return err
			}
			keys, err := client.Keys[*corev1.Secret](ctx, run.Client, kube.Selection{}, client.FromAPI())
			if err != nil {
				return err
			}
			var namespaces []string
			for key := range keys {
				namespaces = append(namespaces, key.Namespace)
			}
			slices.Sort(namespaces)
			listed.Store(&namespaces)
			_, err = run.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}})
			return err
		},
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, op) }() // waited for below
	for _, e := range []env{first, second} {
		eventually(t, func() string {
			if _, err := e.clients.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
				return fmt.Sprint(err, op.Ready())
			}
			return ""
		})
	}
	if err := op.Ready(); err != nil {
		t.Error(err)
	}
	want := []string{first.namespace, second.namespace}
	slices.Sort(want)
	if got := listed.Load(); got == nil || !slices.Equal(*got, want) {
		t.Errorf("the listed Secrets are in %v, want %q", got, want)
	}
	if _, err := first.clients.CoordinationV1().Leases(first.namespace).Get(t.Context(), "limited", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cluster.HTTPClient().CloseIdleConnections()
	maps := must(other.clients.CoreV1().ConfigMaps(other.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web"}))(t)
	if len(maps.Items) > 0 {
		t.Errorf("a namespace outside of the limit has %v", maps.Items)
	}
}

// kubeconfigOf returns the path of a kubeconfig for a user and a namespace.
func kubeconfigOf(t *testing.T, user, namespace string) string {
	t.Helper()
	config := must(local.User(t.Context(), user))(t)
	file := clientcmdapi.NewConfig()
	file.Clusters["local"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["user"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "user", Namespace: namespace}
	file.CurrentContext = "local"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}
