package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// pipes is a listener in memory, for synctest bubbles.
type pipes struct{ *apitest.Listener }

func newPipes() *pipes { return &pipes{apitest.NewListener()} }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }

// pipe is a connection from an address.
type pipe struct {
	net.Conn
	from string
}

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.from), Port: 2} }

// get sends a request for a path with the given lines of its header.
func (p *pipes) get(t *testing.T, from, path string, header ...string) (int, string) {
	t.Helper()
	conn, server := net.Pipe()
	defer func() { _ = conn.Close() }()
	p.Deliver(pipe{server, from})
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\n%s\r\n\r\n", path, strings.Join(header, "\r\n")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode, string(body)
}

func (p *pipes) expect(t *testing.T, status int, path string, parts ...string) string {
	t.Helper()
	got, text := p.get(t, "127.0.0.1", path, "Host: localhost:8080")
	if got != status {
		t.Errorf("GET %s: status %d, want %d: %s", path, got, status, text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("GET %s lacks %q:\n%s", path, part, text)
		}
	}
	return text
}

// A controller of Secrets overwrites what another client writes. /debug shows its runs without the data.
func TestDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.Secrets(), apiserver.Leases())
		key := kube.Key{Namespace: "shop", Name: "web"}
		server.Apply("secrets", key, "kubectl", `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"shop","name":"web"},"data":{"password":"aHVudGVyMg=="}}`)
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		logs := &testlog.Buffer{}
		logger := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		secrets, err := informer.New(informer.Config[*corev1.Secret]{Name: "cache", Retriever: informer.Retrieve[*corev1.Secret](cluster), Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		ctrl, err := controller.New(controller.Config[*corev1.Secret]{
			Name: "secrets", Informer: secrets, Logger: logger,
			Handler: func(ctx context.Context, secret *corev1.Secret) error {
				if string(secret.Data["password"]) == "hunter2" {
					return nil
				}
				secret.Data["password"] = []byte("hunter2")
				_, err := client.Update(ctx, c, secret)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		listener := newPipes()
		m, err := manager.New(manager.Config{
			LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator", Identity: "anna"},
			Runnables: []manager.Runnable{
				{Runner: ctrl},
				{Runner: secrets, Group: manager.Caches},
				{Name: "team/silent", Runner: manager.RunFunc(func(ctx context.Context) error { <-ctx.Done(); return nil })},
				{Name: "team/broken", Runner: broken{}},
			},
			Listener: listener, IgnoreSignals: true, Logger: logger,
			Handlers: map[string]http.Handler{"GET /metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") })},
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		time.Sleep(30 * time.Second)
		listener.expect(t, http.StatusOK, "/debug/secrets", `"phase": "running"`, `"informer": "cache"`, `"objects": 1`, `"key": "shop/web"`)
		for range 10 {
			server.Edit("secrets", key, "hostile", func(obj map[string]any) bool {
				obj["data"] = map[string]any{"password": "b3RoZXI="}
				return true
			})
			time.Sleep(time.Second)
		}

		all := listener.expect(t, http.StatusOK, "/debug", `"debug": "/debug/secrets"`, `"lease": "shop/operator"`, `"state": "leading"`, `"leader": "anna"`, `"name": "team/silent"`, `"group": "leader only"`)
		all += listener.expect(t, http.StatusOK, "/debug/secrets", `"outcome": "success"`, `"update Secret shop/web: done`)
		all += listener.expect(t, http.StatusOK, "/debug/secrets?key=shop/web", `"explanation": [`, `"shop/web is`, `"exists": true`)
		all += listener.expect(t, http.StatusOK, "/debug/secrets?key=shop/other", `"exists": false`, `"runs": []`)
		all += listener.expect(t, http.StatusOK, "/debug/cache", `"informer": "cache"`, `"synced": true`)
		listener.expect(t, http.StatusBadRequest, "/debug/secrets?key=a/b/c", `parse key "a/b/c"`)
		listener.expect(t, http.StatusNotFound, "/debug/team/silent", "GET /debug lists them")
		listener.expect(t, http.StatusNotFound, "/debug/none")
		listener.expect(t, http.StatusNotFound, "/debug/pprof/heap")
		listener.expect(t, http.StatusInternalServerError, "/debug/team/broken", "Debug of team/broken panicked: no state")
		listener.expect(t, http.StatusInternalServerError, "/debug/team/broken?key=unsupported", "encode the state")
		listener.expect(t, http.StatusBadRequest, "/debug/team/broken?key=error", "no such key")
		for _, secret := range []string{"hunter2", "aHVudGVyMg", "b3RoZXI", `"other"`} {
			if strings.Contains(all+logs.String(), secret) {
				t.Errorf("/debug or the log has the data of a Secret: %q in\n%s", secret, all)
			}
		}
		for text := range strings.SplitSeq(all, "\n}\n") {
			if text != "" && !json.Valid([]byte(text+"\n}")) {
				t.Errorf("not JSON: %s", text)
			}
		}

		// Without authorization, /debug is for this host only, and Handlers are for everybody.
		for _, client := range []struct {
			from   string
			header []string
			want   int
		}{
			{"127.0.0.1", []string{"Host: localhost:8080"}, http.StatusOK},
			{"::1", []string{"Host: [::1]:8080"}, http.StatusOK},
			{"127.0.0.1", []string{"Host: 127.0.0.1"}, http.StatusOK},
			{"10.0.0.1", []string{"Host: localhost:8080"}, http.StatusForbidden},
			{"127.0.0.1", []string{"Host: attacker.example"}, http.StatusForbidden},
			{"127.0.0.1", []string{"Host: localhost", "X-Forwarded-For: 10.0.0.1"}, http.StatusForbidden},
			{"127.0.0.1", []string{"Host: localhost", "Forwarded: for=10.0.0.1"}, http.StatusForbidden},
		} {
			for path, want := range map[string]int{"/debug": client.want, "/debug/secrets": client.want, "/metrics": http.StatusOK, "/livez": http.StatusOK} {
				if status, text := listener.get(t, client.from, path, client.header...); status != want {
					t.Errorf("GET %s from %s with %q: status %d, want %d: %s", path, client.from, client.header, status, want, text)
				}
			}
		}
	})
}

// broken is a Runner with a wrong Debug.
type broken struct{}

func (broken) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (broken) Debug(key string) (any, error) {
	switch key {
	case "unsupported":
		return make(chan int), nil
	case "error":
		return nil, errors.New("no such key")
	}
	panic("no state")
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	listener := newPipes()
	m, err := manager.New(manager.Config{Listener: listener, Pprof: true, IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	for _, name := range []string{"heap", "goroutine", "profile?seconds=0.01", "trace?seconds=0.01"} {
		if text := listener.expect(t, http.StatusOK, "/debug/pprof/"+name); len(text) < 100 {
			t.Errorf("profile %s has %d bytes", name, len(text))
		}
	}
	listener.expect(t, http.StatusOK, "/debug/pprof/goroutine?debug=1", "goroutine profile: total ", "TestProfiles")
	listener.expect(t, http.StatusNotFound, "/debug/pprof/none", `no profile "none"`)
	for _, seconds := range []string{"0", "-1", "61", "NaN", "a"} {
		listener.expect(t, http.StatusBadRequest, "/debug/pprof/profile?seconds="+seconds, "between 0 and 60")
	}
	if status, _ := listener.get(t, "10.0.0.1", "/debug/pprof/heap", "Host: localhost"); status != http.StatusForbidden {
		t.Errorf("a client on another host: status %d, want 403", status)
	}
	if handler, pattern := http.DefaultServeMux.Handler(&http.Request{Method: http.MethodGet, Host: "a", URL: &url.URL{Path: "/debug/pprof/heap"}}); pattern != "" {
		t.Errorf("http.DefaultServeMux serves profiles: %v", handler)
	}
}

func TestAuthorizeWithProtectsDebug(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	listener := newPipes()
	m, err := manager.New(manager.Config{
		Listener: listener, AuthorizeWith: cluster, Pprof: true, IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]http.Handler{"/metrics": http.NotFoundHandler()},
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	for _, path := range []string{"/metrics", "/debug", "/debug/http", "/debug/pprof/heap"} {
		listener.expect(t, http.StatusUnauthorized, path)
	}
	listener.expect(t, http.StatusOK, "/livez")
}
