package kube_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// opener is a transport for connections, as client-go creates for each exec: it dials itself. With status 0 it fails.
func opener(sent *atomic.Int64, status int, body func() io.ReadCloser) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent.Add(1)
		if status == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body(), Request: req}, nil
	})
}

func noBody() io.ReadCloser { return http.NoBody }

// An exec is a GET with a WebSocket, and a POST with SPDY. Both may change something in a container.
func TestContract06_ConnectionsIntoPodsAreWrites(t *testing.T) {
	t.Parallel()
	for path, refused := range map[string]bool{
		"/api/v1/namespaces/ns/pods/web/exec":                true,
		"/api/v1/namespaces/ns/pods/web/attach":              true,
		"/api/v1/namespaces/ns/pods/web/portforward":         true,
		"/api/v1/namespaces/ns/pods/web/log":                 false,
		"/api/v1/namespaces/ns/pods/web/proxy/metrics":       false,
		"/api/v1/namespaces/ns/pods/web/proxy/exec":          false,
		"/api/v1/namespaces/ns/configmaps/exec":              false,
		"/apis/example.com/v1/namespaces/ns/websites/attach": false,
	} {
		for _, observed := range []bool{false, true} {
			cluster := clusterOf(t, &rest.Config{Host: "http://server"})
			var sent atomic.Int64
			rt, err := rest.HTTPWrappersForConfig(cluster.RESTConfig(), opener(&sent, http.StatusSwitchingProtocols, noBody))
			if err != nil {
				t.Fatal(err)
			}
			leadership, leading := lead(t)
			ctx := context.WithoutCancel(leading)
			if observed {
				ctx = kube.ObserveCalls(ctx, &observer{})
			}
			open := func() error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path+"?command=reboot", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				return err
			}
			if err := open(); err != nil || sent.Load() != 1 {
				t.Errorf("GET %s while leading: %v, %d requests were sent", path, err, sent.Load())
			}
			leadership.Lose(errTaken)
			if err := open(); errors.Is(err, kube.ErrLeadershipLost) != refused || (sent.Load() == 1) != refused {
				t.Errorf("GET %s after a loss: %v, %d requests were sent in all", path, err, sent.Load())
			}
		}
	}
}

// A term can last for months with an exec every minute, so it must not keep ended ones.
func TestLeadershipKeepsNoConnectionIntoPods(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"opened": http.StatusSwitchingProtocols, "refused": http.StatusForbidden, "failed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clusterOf(t, &rest.Config{Host: "http://server"})
			_, leading := lead(t)
			var sent, freed atomic.Int64
			type kept struct{ _ [1024]byte }
			const requests = 20
			for range requests {
				rt, err := rest.HTTPWrappersForConfig(cluster.RESTConfig(), opener(&sent, status, noBody))
				if err != nil {
					t.Fatal(err)
				}
				value := &kept{}
				runtime.AddCleanup(value, func(int) { freed.Add(1) }, 0)
				ctx := context.WithValue(context.WithoutCancel(leading), value, value)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server/api/v1/namespaces/ns/pods/web/exec", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if (err != nil) != (status == 0) {
					t.Fatal(err)
				}
				if err == nil {
					_ = resp.Body.Close() // as client-go does when it has the connection
				}
			}
			for freed.Load() < requests-2 { // contexts that are kept end with the test's time
				runtime.GC()
				runtime.Gosched()
			}
		})
	}
}

// A connection of a custom transport must end with the leadership too.
func TestContract06_ConnectionsThroughOtherTransportsEnd(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	cluster := clusterOf(t, &rest.Config{Host: "http://server", Transport: opener(&atomic.Int64{}, http.StatusSwitchingProtocols, func() io.ReadCloser { return ours })})
	leadership, leading := lead(t)
	req, err := http.NewRequestWithContext(context.WithoutCancel(leading), http.MethodPost, "http://server/api/v1/namespaces/ns/pods/web/exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cluster.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body is a %T, want a connection", resp.Body)
	}
	go func() { _, _ = conn.Write([]byte("rm\n")) }() // ends with the test
	if line, err := bufio.NewReader(theirs).ReadString('\n'); err != nil || line != "rm\n" {
		t.Fatalf("the other side reads %q, %v", line, err)
	}
	leadership.Lose(errTaken)
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other side reads %v after the loss, want the end of the connection", err)
	}
}

// A server that stops reading blocks the writing goroutine. The end of the leadership must not wait for it.
func TestContract06_LossDoesNotWaitForBlockedServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := apitest.NewListener()
		cluster := clusterOf(t, &rest.Config{Host: "http://127.0.0.1", Dial: listener.Dial})
		leadership, leading := lead(t)
		result := make(chan error, 1)
		go func() { // waited for below
			body := strings.NewReader(strings.Repeat("x", 1<<20))
			req, err := http.NewRequestWithContext(context.WithoutCancel(leading), http.MethodPost, "http://127.0.0.1/api/v1/namespaces/ns/configmaps", body)
			if err == nil {
				_, err = send(cluster.HTTPClient(), req)
			}
			result <- err
		}()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		synctest.Wait() // the client waits in a write: the connection has no buffer
		began := time.Now()
		leadership.Release()
		if took := time.Since(began); took > 0 {
			t.Errorf("the release took %s", took)
		}
		if err := <-result; !errors.Is(err, kube.ErrLeadershipLost) {
			t.Errorf("the write in flight: %v, want ErrLeadershipLost", err)
		}
	})
}
