package leader

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// silentListener is a listener that can silence its connections: clients get no more responses on them, as if a load
// balancer had dropped them. Later connections work.
type silentListener struct {
	net.Listener

	open  atomic.Int32 // number of open connections
	mu    sync.Mutex
	conns []*silentConn // guarded by mu
}

func (l *silentListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	c := &silentConn{Conn: conn, closed: sync.OnceFunc(func() { l.open.Add(-1) })}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

// silence silences the open connections, and returns the number of all connections so far.
func (l *silentListener) silence() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.silent.Store(true)
	}
	return len(l.conns)
}

type silentConn struct {
	net.Conn

	silent atomic.Bool
	closed func()
}

func (c *silentConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (c *silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.silent.Load() {
		n, err = c.Conn.Read(p)
	}
	return n, err
}

// starved is a rate limiter whose tokens all go to other requests.
type starved struct{ flowcontrol.RateLimiter }

func (starved) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestSharedRateLimiterDoesNotDelayRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := s.client("a")
		cluster, err := kube.Connect(&rest.Config{Host: "http://api.invalid", Transport: c, RateLimiter: starved{}})
		if err != nil {
			t.Fatal(err)
		}
		e := newTestElector(t, c, func(config *Config) { config.Cluster = cluster })
		terms := 0
		r := run(t, e, func(ctx context.Context) error { terms++; return untilDone(ctx) })
		pass(10 * time.Minute)
		if got := e.Status().state; got != stateLeading || terms != 1 {
			t.Errorf("after 10 min the state is %s in term %d, want leading in the first one", got, terms)
		}
		r.stopWithoutError(t)
	})
}

// serveLease returns a server in memory that is not started yet, with one lease without a holder.
func serveLease(t *testing.T, listener net.Listener) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	nobody := ""
	lease := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &nobody}}
	lease.Namespace, lease.Name, lease.ResourceVersion = "prod", "printer", "1"
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			version, _ := strconv.Atoi(lease.ResourceVersion)
			if err := json.NewDecoder(r.Body).Decode(&lease); err != nil {
				t.Errorf("read a lease: %v", err)
			}
			lease.ResourceVersion = strconv.Itoa(version + 1)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&lease)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	t.Cleanup(server.Close)
	return server
}

// electorAt returns an Elector with short times for the lease of a server. change may be nil.
func electorAt(t *testing.T, server *httptest.Server, listener *apitest.Listener, change func(*rest.Config)) *Elector {
	t.Helper()
	config := &rest.Config{Host: server.URL, Dial: listener.Dial, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	if certificate := server.Certificate(); certificate != nil {
		config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
		config.ServerName = "example.com"
	}
	if change != nil {
		change(config)
	}
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	e, err := New(Config{
		Cluster: cluster, Name: "printer", Namespace: "prod", Identity: "a",
		LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A leader survives one renewal without a response, also if the cause is a dead connection: HTTP/2 would send the next
// request on it too.
func TestLeaderSurvivesDeadConnection(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Second} { // of the rest.Config
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			surviveDeadConnection(t, timeout)
		})
	}
}

func surviveDeadConnection(t *testing.T, timeout time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pipes := apitest.NewListener()
		listener := &silentListener{Listener: pipes}
		server := serveLease(t, listener)
		server.EnableHTTP2 = true
		server.StartTLS()
		e := electorAt(t, server, pipes, func(c *rest.Config) { c.Timeout = timeout })
		leads := make(chan struct{}, 10)
		r := run(t, e, func(ctx context.Context) error {
			leads <- struct{}{}
			return untilDone(ctx)
		})
		<-leads
		before := listener.silence()
		pass(5 * time.Second)
		if status := e.Status(); status.state != stateLeading || status.Err != nil || len(leads) > 0 {
			t.Errorf("5 s after its connections died, the status is %+v, want one term without errors", status)
		}
		if after := listener.silence(); after == before {
			t.Error("no connection was opened")
		}
		// The release needs another connection too.
		r.stopWithoutError(t)
		if holder := e.Status().Leader; holder != "" {
			t.Errorf("the holder is %q after a release", holder)
		}
		synctest.Wait()
		if n := listener.open.Load(); n > 0 {
			t.Errorf("%d connections are open after Run", n)
		}
	})
}

// A panic of the user's transport must not end the process: no other code recovers in the goroutine of renewals.
func TestPanicOfTransportFailsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipes := apitest.NewListener()
		server := serveLease(t, pipes)
		server.Start()
		var requests atomic.Int32
		e := electorAt(t, server, pipes, func(config *rest.Config) {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if requests.Add(1)%3 == 0 {
						panic("no token")
					}
					return next.RoundTrip(req)
				})
			})
		})
		leads := make(chan struct{}, 10)
		r := run(t, e, func(ctx context.Context) error {
			leads <- struct{}{}
			return untilDone(ctx)
		})
		<-leads
		for requests.Load() < 20 {
			pass(10 * time.Millisecond)
		}
		if err := r.stop(); err != nil || len(leads) > 0 {
			t.Errorf("Run returned %v, and there were %d more terms", err, len(leads))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
