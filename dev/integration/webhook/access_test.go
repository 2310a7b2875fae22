package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// The tokens of TestSmokeTokensAndAccess: what authenticate does with each.
const (
	tokenOperator = "token-operator"
	tokenGuest    = "token-guest"
	tokenUnknown  = "token-unknown"
	tokenError    = "token-error"
	tokenPanic    = "token-panic"
	tokenNameless = "token-nameless"
	tokenAudience = "token-other-audience"
)

func authenticate(_ context.Context, review *authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error) {
	status := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Audiences}
	switch review.Token {
	case tokenOperator:
		status.User = authenticationv1.UserInfo{Username: "olga", UID: "7", Groups: []string{"operators"}, Extra: map[string]authenticationv1.ExtraValue{"team": {"blue"}}}
	case tokenGuest:
		status.User.Username = "guest"
	case tokenNameless:
	case tokenAudience:
		status.User.Username = "guest"
		status.Audiences = []string{"https://elsewhere.example.com"}
	case tokenError:
		return status, errors.New("the directory does not respond")
	case tokenPanic:
		panic("a defect of authenticate")
	default:
		status.Authenticated = false
	}
	return status, nil
}

// authorize has an opinion about the group operators and the namespace "closed".
func authorize(_ context.Context, review *authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	attributes := review.ResourceAttributes
	if attributes == nil || !slices.Contains(review.Groups, "operators") {
		return status, nil
	}
	switch attributes.Namespace {
	case "closed":
		return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "the namespace is closed"}, nil
	case "error":
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, errors.New("the directory does not respond")
	case "panic":
		panic("a defect of authorize")
	case "both":
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, nil
	}
	status.Allowed = attributes.Verb == "list" && attributes.Resource == "configmaps" && fmt.Sprint(review.Extra["team"]) == "[blue]"
	return status, nil
}

// The API server authenticates the tokens of its requests and authorizes users with hooks. Nothing but a clear decision
// authenticates or allows. A middleware sees the trace of a request to the API server, and the audit log has the
// annotations of the hook. The server requires the client certificate of the API server, and TLS 1.2.
func TestSmokeTokensAndAccess(t *testing.T) {
	e := newEnv(t)
	listener := e.listen()
	longest := strings.Repeat("k", 63)
	admitting := webhook.Validating(e.options("traced"), func(_ context.Context, r *mapRequest) error {
		return errors.Join(r.AddAuditAnnotation("decision", "free"), r.AddAuditAnnotation(longest, fmt.Sprint(r.DryRun())))
	})
	traces := make(chan string, 1)
	server, err := webhook.New(webhook.Config{
		Cluster: e.cluster, Listener: listener,
		Hooks: []webhook.Hook{webhook.Authenticating("tokens.example.com", authenticate), webhook.Authorizing("access.example.com", authorize), admitting},
		Middleware: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/traced.example.com" {
					traces <- req.Header.Get("Traceparent")
				}
				next.ServeHTTP(w, req)
			})
		},
		CertFile: filepath.Join(e.folder, "tls.crt"), KeyFile: filepath.Join(e.folder, "tls.key"),
		ClientCAFile: e.file("ca.crt", string(e.authority.Cert)),
		TLS:          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.run(e.Context(), server)
	url := "https://" + listener.Addr().String()
	audited := filepath.Join(e.TempDir(), "audit.log")
	cluster, err := localcluster.Start(t.Context(), localcluster.Config{APIServerArgs: []string{
		"--authentication-token-webhook-config-file=" + e.kubeconfig(url+"/tokens.example.com"),
		"--authentication-token-webhook-version=v1",
		"--authorization-mode=RBAC,Webhook",
		"--authorization-webhook-config-file=" + e.kubeconfig(url+"/access.example.com"),
		"--authorization-webhook-version=v1",
		"--admission-control-config-file=" + e.admissionConfig(listener.Addr()),
		"--audit-log-path=" + audited,
		"--audit-policy-file=" + e.file("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, resources: [{group: \"\", resources: [configmaps]}]}]\n"),
		"--tracing-config-file=" + e.file("tracing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	as := func(token string) kubernetes.Interface {
		config := rest.AnonymousClientConfig(cluster.RESTConfig())
		config.BearerToken = token
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	review, err := as(tokenOperator).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user := review.Status.UserInfo; user.Username != "olga" || user.UID != "7" || !slices.Contains(user.Groups, "operators") || fmt.Sprint(user.Extra["team"]) != "[blue]" {
		t.Errorf("the user is %+v", user)
	}
	for _, token := range []string{tokenUnknown, tokenError, tokenPanic, tokenNameless, tokenAudience} {
		if _, err := as(token).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", token, err)
		}
	}

	list := func(token, namespace string) error {
		_, err := as(token).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(tokenOperator, "default"); err != nil {
		t.Error(err)
	}
	if _, err := as(tokenOperator).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v", err)
	}
	if err := list(tokenGuest, "default"); !apierrors.IsForbidden(err) {
		t.Errorf("a guest: %v", err)
	}
	if err := list(tokenOperator, "closed"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the namespace is closed") {
		t.Errorf("denied: %v", err)
	}
	// The API server repeats a review without a decision for seconds, and fails the request then.
	var undecided sync.WaitGroup
	for _, namespace := range []string{"error", "panic", "both"} {
		undecided.Go(func() { // waited for below
			if err := list(tokenOperator, namespace); !apierrors.IsInternalError(err) {
				t.Errorf("%s: %v", namespace, err)
			}
		})
	}
	undecided.Wait()

	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return traced{next} })
	admin := clustertest.Client(t, clustertest.Connect(t, config))
	if _, err := client.Create(t.Context(), admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}); err != nil {
		t.Fatal(err)
	}
	for _, obj := range configurations(e, server, "traced", url, e.authority.Cert) {
		if _, err := client.Apply(t.Context(), admin, obj); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, func() string {
		if _, err := client.Create(t.Context(), admin, e.configMap("traced"), client.DryRun()); err != nil {
			t.Fatal(err)
		}
		select {
		case trace := <-traces:
			if !strings.HasPrefix(trace, "00-"+traceID+"-") {
				t.Errorf("the trace is %q", trace)
			}
			return ""
		default:
			return "the hook is not called"
		}
	})
	log, err := os.ReadFile(audited)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"traced.example.com/decision":"free"`, `"traced.example.com/` + longest + `":"true"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the audit log lacks %s", want)
		}
	}
}

const traceID = "0af7651916cd43dd8448eb211c80319c"

// traced makes requests part of a trace.
type traced struct{ http.RoundTripper }

func (r traced) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	return r.RoundTripper.RoundTrip(req)
}

// file writes a file, and returns its path.
func (e *env) file(name, text string) (path string) {
	e.Helper()
	path = filepath.Join(e.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.Fatal(err)
	}
	return path
}

// kubeconfig writes a file with which the API server reaches a hook.
func (e *env) kubeconfig(url string) (path string) {
	e.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hook"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: e.authority.Cert}
	config.AuthInfos["api-server"] = e.clientOf()
	config.Contexts["hook"] = &clientcmdapi.Context{Cluster: "hook", AuthInfo: "api-server"}
	config.CurrentContext = "hook"
	path = filepath.Join(e.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		e.Fatal(err)
	}
	return path
}
