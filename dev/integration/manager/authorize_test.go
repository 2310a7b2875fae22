package manager

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/manager"
)

// The API server decides who reads the metrics. The operator has the ClusterRole that docs/manager.md names.
func TestSmokeHTTPServerAuthorization(t *testing.T) {
	t.Parallel()
	c := clustertest.Client(t, clustertest.Connect(t, local.RESTConfig()))
	namespace := clustertest.Namespace(t, c)
	account := func(name string) *corev1.ServiceAccount {
		t.Helper()
		created, err := client.Create(t.Context(), c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	token := func(serviceAccount *corev1.ServiceAccount) string {
		t.Helper()
		issued, err := client.Create(t.Context(), c, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}}, client.SubresourceOf(serviceAccount, "token"))
		if err != nil {
			t.Fatal(err)
		}
		return issued.Status.Token
	}
	bind := func(role string, to *corev1.ServiceAccount) {
		t.Helper()
		create(t, c, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + to.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: to.Name}},
		})
	}
	operator, prometheus, other := account("operator"), account("prometheus"), account("other")
	create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-metrics"}, Rules: []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}})
	bind(namespace+"-metrics", prometheus)

	config := rest.AnonymousClientConfig(local.RESTConfig())
	config.BearerToken = token(operator)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Config{
		Listener: listener, AuthorizeWith: clustertest.Connect(t, config), IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]http.Handler{
			"GET /metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") }),
			"/other":       http.NotFoundHandler(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	transport := &http.Transport{DisableKeepAlives: true}
	get := func(path, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	reader, stranger := token(prometheus), token(other)
	if status := get("/metrics", reader); status != http.StatusServiceUnavailable {
		t.Errorf("without the permission to create reviews: status %d, want 503", status)
	}
	bind("system:auth-delegator", operator)
	clustertest.Eventually(t, func() string {
		if status := get("/metrics", reader); status != http.StatusOK {
			return "GET /metrics: " + http.StatusText(status)
		}
		return ""
	})
	for _, request := range []struct {
		path, token string
		want        int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "invalid", http.StatusUnauthorized},
		{"/metrics", changed(reader), http.StatusUnauthorized},
		{"/metrics", stranger, http.StatusForbidden},
		{"/other", reader, http.StatusForbidden},
		{"/debug", "", http.StatusUnauthorized},
		{"/debug", reader, http.StatusForbidden},
		{"/readyz", "", http.StatusOK},
	} {
		if status := get(request.path, request.token); status != request.want {
			t.Errorf("GET %s: status %d, want %d", request.path, status, request.want)
		}
	}
	begun := time.Now()
	for range 100 {
		if status := get("/metrics", reader); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	t.Logf("a request with cached reviews took %s", time.Since(begun)/100)
}

// changed returns a token with another signature. The last character of a signature does not matter: it has unused bits.
func changed(token string) string {
	at, replacement := len(token)-10, "A"
	if token[at] == 'A' {
		replacement = "B"
	}
	return token[:at] + replacement + token[at+1:]
}
