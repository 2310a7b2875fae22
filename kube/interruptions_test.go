package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// operator is a program in a bubble that copies the ConfigMaps of the namespace "shop" to "copies" while it leads, and its
// API server, which has TLS and accepts some tokens.
type operator struct {
	*secured

	api       *apiserver.Server
	objects   rest.Interface                             // of a client that is not disturbed
	tokens    atomic.Pointer[[]string]                   // that are valid
	reject    atomic.Pointer[func(r *http.Request) bool] // requests that get the status 401, with any token
	rejected  atomic.Int64                               // number of responses with the status 401
	terms     atomic.Int64                               // number of terms of leadership
	tokenFile string
	copies    int
}

// startOperator starts the program with the config that change returns.
func startOperator(t *testing.T, change func(o *operator, config *rest.Config)) *operator {
	t.Helper()
	api, err := apiserver.New(apiserver.Config{Kinds: []*apiserver.Kind{apiserver.ConfigMaps(), apiserver.Leases()}, NamespacesExist: true})
	if err != nil {
		t.Fatal(err)
	}
	first := newAuthority(t, "first")
	o := &operator{api: api, tokenFile: filepath.Join(t.TempDir(), "token")}
	o.secured = serveSecured(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if reject := o.reject.Load(); !slices.Contains(*o.tokens.Load(), token) || reject != nil && (*reject)(r) {
			o.rejected.Add(1)
			status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}))
	o.setToken("one")
	o.write(first.pem)
	o.replace(first)

	undisturbed := clusterOf(t, &rest.Config{Host: "http://api", Transport: api.Transport()})
	if o.objects, err = undisturbed.RESTClient(schema.GroupVersion{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	config := o.config()
	config.BearerTokenFile = o.tokenFile
	change(o, config)
	cluster := clusterOf(t, config)
	logger := slog.New(slog.DiscardHandler)
	client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "copy", Logger: logger, ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"shop"}}),
		Handler: func(ctx context.Context, obj *corev1.ConfigMap) error {
			return create(ctx, client, "copies", obj.Name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	count := manager.RunFunc(func(ctx context.Context) error {
		o.terms.Add(1)
		<-ctx.Done()
		return nil
	})
	m, err := manager.New(manager.Config{
		LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator"},
		Runnables:      []manager.Runnable{{Runner: ctrl}, {Name: "count", Runner: count}},
		IgnoreSignals:  true, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	time.Sleep(time.Minute) // until it leads
	o.expectCopy("at the start")
	return o
}

func create(ctx context.Context, client rest.Interface, namespace, name string) error {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.Post().Namespace(namespace).Resource("configmaps").Body(obj).Do(ctx).Error()
}

// setToken writes a token to the file of the program. It and others are valid.
func (o *operator) setToken(token string, otherTokens ...string) {
	o.t.Helper()
	if err := os.WriteFile(o.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.accept(append(otherTokens, token)...)
}

func (o *operator) accept(tokens ...string) { o.tokens.Store(&tokens) }

// expectCopy creates a ConfigMap, and waits until the program has copied it.
func (o *operator) expectCopy(when string) {
	o.t.Helper()
	o.copies++
	name := fmt.Sprint("copy-", o.copies)
	o.create(name)
	o.await(when, name)
}

func (o *operator) create(name string) {
	o.t.Helper()
	if err := create(o.t.Context(), o.objects, "shop", name); err != nil {
		o.t.Fatal(err)
	}
}

// await waits until the program has copied a ConfigMap. Leadership must not have been lost.
func (o *operator) await(when, name string) {
	o.t.Helper()
	begun := time.Now()
	for {
		time.Sleep(time.Second)
		err := o.objects.Get().Namespace("copies").Resource("configmaps").Name(name).Do(o.t.Context()).Error()
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			o.t.Fatalf("%s: a ConfigMap was not copied within 1 min: %v", when, err)
		}
	}
	if terms := o.terms.Load(); terms != 1 {
		o.t.Errorf("%s: the program is in term %d, want 1", when, terms)
	}
}

func TestTokenFileIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := startOperator(t, func(*operator, *rest.Config) {})
		// The kubelet replaces a token a long time before it expires: no request is rejected.
		o.setToken("two", "one")
		time.Sleep(2 * time.Minute)
		o.accept("two")
		o.cut()
		o.expectCopy("token two")
		if n := o.rejected.Load(); n != 0 {
			t.Errorf("%d requests were rejected", n)
		}
		// The old token is revoked at the same time.
		o.setToken("three")
		o.cut()
		o.expectCopy("token three")
		// It is revoked some seconds before.
		o.accept("four")
		o.cut()
		time.Sleep(5 * time.Second)
		o.setToken("four")
		o.expectCopy("token four")
	})
}

func TestCertificateAuthorityIsReplacedUnderProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := startOperator(t, func(*operator, *rest.Config) {})
		next := newAuthority(t, "next")
		o.write(next.pem)
		o.authority.Store(next)
		o.expectCopy("connections are open")
		o.cut()
		o.expectCopy("connections are closed")
		// The server is replaced some seconds before the file.
		next = newAuthority(t, "last")
		o.replace(next)
		time.Sleep(5 * time.Second)
		o.write(next.pem)
		o.expectCopy("the file is late")
	})
}

func TestTemporary401(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]func(r *http.Request) bool{
		"all requests": func(*http.Request) bool { return true },
		"lists":        func(r *http.Request) bool { return r.URL.Query().Has("sendInitialEvents") },
		"watches":      func(r *http.Request) bool { return r.URL.Query().Has("watch") },
		"writes":       func(r *http.Request) bool { return r.Method == http.MethodPost },
		"renewals":     func(r *http.Request) bool { return r.Method == http.MethodPut },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := startOperator(t, func(*operator, *rest.Config) {})
				all := func(*http.Request) bool { return true }
				o.reject.Store(&all)
				o.cut()
				o.create("meanwhile")
				o.api.Compact() // so that the next watch is followed by a list
				o.rejected.Store(0)
				o.reject.Store(&match)
				time.Sleep(5 * time.Second) // less than RenewDeadline by two RetryPeriods
				if o.rejected.Load() == 0 {
					t.Error("no request was rejected")
				}
				o.reject.Store(nil)
				o.expectCopy("after the time with the status 401")
				o.await("a change during the time with the status 401", "meanwhile")
			})
		})
	}
}

// The credential of an exec plugin expires. It is renewed before the API server rejects it, or when it does.
func TestExecCredentialExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		credential := filepath.Join(t.TempDir(), "credential.json")
		write := func(token string, lifetime time.Duration) {
			t.Helper()
			text, err := json.Marshal(map[string]any{
				"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
				"status": map[string]any{"token": token, "expirationTimestamp": time.Now().Add(lifetime).Format(time.RFC3339)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(credential, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one", 10*time.Minute)
		o := startOperator(t, func(_ *operator, config *rest.Config) {
			config.BearerTokenFile = ""
			config.ExecProvider = &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "cat", Args: []string{credential}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		})
		write("two", time.Hour)
		o.accept("one", "two")
		time.Sleep(10 * time.Minute)
		o.accept("two")
		o.cut()
		o.expectCopy("the credential has expired")
		if n := o.rejected.Load(); n != 0 {
			t.Errorf("%d requests were rejected", n)
		}
		write("three", time.Hour)
		o.accept("three")
		o.cut()
		o.expectCopy("the credential was revoked")
	})
}

// A request that the API server rejects is sent again at most once, and only if its body can be read again and the file
// has another token.
func TestRejectedTokenIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	var received []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // part of what is compared
		received = append(received, r.Header.Get("Authorization")+" "+string(body))
		status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	for _, tc := range []struct {
		name          string
		authorization string // of the request, "" for the token file
		token         string // in the file
		body          io.Reader
		want          []string
	}{
		{"same token", "", "old", strings.NewReader("x"), []string{"Bearer old x"}},
		{"empty file", "", "", strings.NewReader("x"), []string{"Bearer old x"}},
		{"another token", "", "new", strings.NewReader("x"), []string{"Bearer old x", "Bearer new x"}},
		{"no body", "", "new", nil, []string{"Bearer old ", "Bearer new "}},
		{"body that can be read once", "", "new", io.MultiReader(strings.NewReader("x")), []string{"Bearer old x"}},
		{"basic authentication", "Basic x", "new", nil, []string{"Basic x "}},
		{"token of another user", "Bearer other", "new", nil, []string{"Bearer other "}},
	} {
		write("old")
		client := clusterOf(t, &rest.Config{Host: server.URL, BearerTokenFile: file}).HTTPClient()
		if _, err := send(client, newRequest(t, server.URL, nil)); err != nil {
			t.Fatal(err)
		}
		received = nil
		write(tc.token)
		req := newRequest(t, server.URL, tc.body)
		if tc.authorization != "" {
			req.Header.Set("Authorization", tc.authorization)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || !slices.Equal(received, tc.want) {
			t.Errorf("%s: the server received %q, want %q; the status is %s", tc.name, received, tc.want, resp.Status)
		}
	}
}

func newRequest(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
