package apiserver

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// newReviewServer returns a server with service accounts and reviews and, with roles, with the kinds of RBAC. It has the
// account shop/web.
func newReviewServer(t *testing.T, roles bool) *Server {
	t.Helper()
	s := newServer(t, func(c *Config) {
		c.Kinds = append(c.Kinds, Builtin[corev1.ServiceAccount](corev1.SchemeGroupVersion.WithKind("ServiceAccount"), "serviceaccounts", corev1.AddToScheme))
		c.Kinds = append(c.Kinds, Reviews()...)
		if !roles {
			return
		}
		clusterRoles := Builtin[rbacv1.ClusterRole](rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "clusterroles", rbacv1.AddToScheme)
		clusterBindings := Builtin[rbacv1.ClusterRoleBinding](rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "clusterrolebindings", rbacv1.AddToScheme)
		clusterRoles.ClusterScoped, clusterBindings.ClusterScoped = true, true
		c.Kinds = append(c.Kinds, clusterRoles, clusterBindings)
	})
	mustSend(t, s, http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"web"}}`)
	return s
}

func issueToken(t *testing.T, s *Server, spec string) string {
	t.Helper()
	var request authenticationv1.TokenRequest
	text := mustSend(t, s, http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts/web/token", `{"spec":{`+spec+`}}`)
	if err := json.Unmarshal([]byte(text), &request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func reviewToken(t *testing.T, s *Server, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	var review authenticationv1.TokenReview
	text := mustSend(t, s, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+token+`"}}`)
	if err := json.Unmarshal([]byte(text), &review); err != nil {
		t.Fatal(err)
	}
	return review.Status
}

// A token expires in virtual time, a minute later than it says, as in kube-apiserver. Its requests then are unauthorized.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newReviewServer(t, false)
		token := issueToken(t, s, `"expirationSeconds":600`)
		time.Sleep(11 * time.Minute)
		if status := reviewToken(t, s, token); !status.Authenticated || status.User.Username != "system:serviceaccount:shop:web" {
			t.Errorf("after 11 minutes: %+v", status)
		}
		if code, text := send(t, s, http.MethodGet, configMapsPath, "", "Authorization", "Bearer "+token); code != http.StatusOK {
			t.Errorf("after 11 minutes: %d %s", code, text)
		}
		time.Sleep(time.Second)
		if status := reviewToken(t, s, token); status.Authenticated || status.Error != "[invalid bearer token, service account token has expired]" || status.User.Username != "" {
			t.Errorf("after 11 minutes and a second: %+v", status)
		}
		if code, text := send(t, s, http.MethodGet, configMapsPath, "", "Authorization", "bearer "+token); code != http.StatusUnauthorized || !strings.Contains(text, `"message":"Unauthorized"`) {
			t.Errorf("after 11 minutes and a second: %d %s", code, text)
		}
	})
}

// A token is invalid without its service account, also while a finalizer keeps the account for more than a minute.
func TestTokenOfDeletedAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newReviewServer(t, false)
		const account, merge = "/api/v1/namespaces/shop/serviceaccounts/web", "application/merge-patch+json"
		token := issueToken(t, s, ``)
		mustSend(t, s, http.MethodPatch, account, `{"metadata":{"finalizers":["example.com/a"]}}`, "Content-Type", merge)
		mustSend(t, s, http.MethodDelete, account, "")
		time.Sleep(time.Minute)
		if status := reviewToken(t, s, token); !status.Authenticated {
			t.Errorf("a minute after the deletion: %+v", status)
		}
		time.Sleep(2 * time.Second)
		if status := reviewToken(t, s, token); status.Authenticated || status.Error != "[invalid bearer token, service account shop/web has been deleted]" {
			t.Errorf("later: %+v", status)
		}
		mustSend(t, s, http.MethodPatch, account, `{"metadata":{"finalizers":null}}`, "Content-Type", merge)
		mustSend(t, s, http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"web"}}`)
		if status := reviewToken(t, s, token); status.Authenticated || !strings.Contains(status.Error, "does not match claim") {
			t.Errorf("a new account: %+v", status)
		}
	})
}

// Requests without a token of this server are those of an administrator.
func TestRequestsOfOtherTokens(t *testing.T) {
	t.Parallel()
	s := newReviewServer(t, true)
	token := issueToken(t, s, ``)
	forged := strings.Split(token, ".")
	forged[1] = base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://kubernetes.default.svc.cluster.local"}`))
	anyone := forged[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["`+tokenIssuer+`"],"exp":9999999999}`))
	anyone += "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(tokenKey(), []byte(anyone)))
	for header, code := range map[string]int{
		"": http.StatusOK, "Bearer": http.StatusOK, "Bearer abc": http.StatusOK, "Bearer a.b.c": http.StatusOK, "Bearer " + strings.Join(forged, "."): http.StatusOK,
		"Basic " + token: http.StatusOK, "Bearer " + token: http.StatusForbidden, "Bearer " + anyone: http.StatusUnauthorized,
	} {
		if got, text := send(t, s, http.MethodGet, configMapsPath, "", "Authorization", header); got != code {
			t.Errorf("%q: %d %s, want %d", header, got, text, code)
		}
	}
}

// An account may impersonate only the users and groups that its roles name; an administrator may impersonate all.
func TestAccountsNeedPermissionToImpersonate(t *testing.T) {
	t.Parallel()
	s := newReviewServer(t, true)
	const path = "/apis/rbac.authorization.k8s.io/v1/"
	for name, rule := range map[string]string{
		"reads":        `{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}`,
		"impersonates": `{"verbs":["impersonate"],"apiGroups":[""],"resources":["users","groups","serviceaccounts"],"resourceNames":["jane","staff","web"]}`,
	} {
		mustSend(t, s, http.MethodPost, path+"clusterroles", `{"metadata":{"name":"`+name+`"},"rules":[`+rule+`]}`)
		subject := map[string]string{"reads": "jane", "impersonates": "system:serviceaccount:shop:web"}[name]
		mustSend(t, s, http.MethodPost, path+"clusterrolebindings", `{"metadata":{"name":"`+name+`"},"roleRef":{"kind":"ClusterRole","name":"`+name+`"},"subjects":[{"kind":"User","name":"`+subject+`"}]}`)
	}
	bearer := "Bearer " + issueToken(t, s, ``)
	for _, test := range []struct {
		authorization, user, group string
		code                       int
		want                       string
	}{
		{bearer, "jane", "", http.StatusOK, "items"},
		{bearer, "jane", "staff", http.StatusOK, "items"},
		{bearer, "jane", "system:masters", http.StatusForbidden, `cannot impersonate resource \"groups\"`},
		{bearer, "bert", "", http.StatusForbidden, `cannot impersonate resource \"users\"`},
		{bearer, "system:serviceaccount:shop:web", "", http.StatusForbidden, `cannot list resource \"configmaps\"`},
		{bearer, "system:serviceaccount:shop:other", "", http.StatusForbidden, `cannot impersonate resource \"serviceaccounts\"`},
		{"", "bert", "system:masters", http.StatusOK, "items"},
	} {
		headers := []string{"Authorization", test.authorization, "Impersonate-User", test.user}
		if test.group != "" {
			headers = append(headers, "Impersonate-Group", test.group)
		}
		if code, text := send(t, s, http.MethodGet, configMapsPath, "", headers...); code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%.6s as %q and %q: %d %s, want %d %s", test.authorization, test.user, test.group, code, text, test.code, test.want)
		}
	}
}

// A server without the kinds of RBAC permits everything, also in reviews.
func TestReviewsWithoutRoles(t *testing.T) {
	t.Parallel()
	const path, access = "/apis/authorization.k8s.io/v1/", `{"spec":{"user":"jane","resourceAttributes":{"verb":"get","resource":"pods"}}}`
	for roles, want := range map[bool][2]string{
		false: {`"status":{"allowed":true}`, `"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]`},
		true:  {`"status":{"allowed":false}`, `"resourceRules":[],"nonResourceRules":[],"incomplete":false`},
	} {
		s := newReviewServer(t, roles)
		if text := mustSend(t, s, http.MethodPost, path+"subjectaccessreviews", access); !strings.Contains(text, want[0]) {
			t.Errorf("roles %t: %s", roles, text)
		}
		if text := mustSend(t, s, http.MethodPost, path+"selfsubjectrulesreviews", `{"spec":{"namespace":"shop"}}`); !strings.Contains(text, want[1]) {
			t.Errorf("roles %t: %s", roles, text)
		}
	}
}

// A review of rules has those of the user, and names the roles that bindings lack.
func TestReviewOfRules(t *testing.T) {
	t.Parallel()
	s := newReviewServer(t, true)
	const path = "/apis/rbac.authorization.k8s.io/v1/"
	bind := func(name, role, user string) {
		mustSend(t, s, http.MethodPost, path+"clusterrolebindings", `{"metadata":{"name":"`+name+`"},"roleRef":{"kind":"ClusterRole","name":"`+role+`"},"subjects":[{"kind":"User","name":"`+user+`"}]}`)
	}
	mustSend(t, s, http.MethodPost, path+"clusterroles", `{"metadata":{"name":"r"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]},{"verbs":["get"],"nonResourceURLs":["/metrics"]},`+
		`{"verbs":["create"],"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectrulesreviews"]}]}`)
	bind("a", "r", "jane")
	bind("b", "missing", "jane")
	text := mustSend(t, s, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"shop"}}`, "Impersonate-User", "jane")
	const want = `"status":{"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]},{"verbs":["create"],"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectrulesreviews"]}],` +
		`"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/metrics"]}],"incomplete":false,"evaluationError":"clusterrole.rbac.authorization.k8s.io \"missing\" not found"}`
	if !strings.Contains(text, want) {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestDocumentsOfReviews(t *testing.T) {
	t.Parallel()
	s := newReviewServer(t, false)
	text := mustSend(t, s, http.MethodGet, "/openapi/v3/apis/authorization.k8s.io/v1", "")
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	local := document.Paths["/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"]
	if len(document.Paths) != 4 || len(local) != 1 || local["post"] == nil || !strings.Contains(text, `"io.k8s.api.authorization.v1.SubjectAccessReviewStatus":`) {
		t.Errorf("%d paths, %v", len(document.Paths), local)
	}
	if text := mustSend(t, s, http.MethodGet, "/apis/authentication.k8s.io/v1", ""); !strings.Contains(text, `"name":"tokenreviews","singularName":"tokenreview","namespaced":false,"kind":"TokenReview","verbs":["create"]`) {
		t.Error(text)
	}
}
