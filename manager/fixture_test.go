package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // golden files have times, which the machine's zone must not change
	goleak.VerifyTestMain(m)
}

// journal records what happened, in order.
type journal struct {
	mu      sync.Mutex
	entries []string // guarded by mu
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

// take returns the entries since the last call.
func (j *journal) take() string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.Join(j.entries, ", ")
	j.entries = nil
	return text
}

// expectStarts expects starts in steps: those of one step in any order, because a runnable counts as started when its Run
// is called, and what Run does first may come after the start of the next one.
func (j *journal) expectStarts(t *testing.T, steps ...string) {
	t.Helper()
	text := j.take()
	got := strings.Split(text, ", ")
	for _, step := range steps {
		want := strings.Split(step, ", ")
		begun := got[:min(len(want), len(got))]
		got = got[len(begun):]
		if slices.Sort(begun); !slices.Equal(begun, slices.Sorted(slices.Values(want))) {
			t.Errorf("got  %q\nwant %q", text, steps)
			return
		}
	}
	if len(got) > 0 {
		t.Errorf("got  %q\nwant %q", text, steps)
	}
}

func (j *journal) expect(t *testing.T, want string) {
	t.Helper()
	if got := j.take(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// part is a Runner for tests. Its zero value but journal and name runs until its context ends. It is ready when its Run
// was called, unless notReady is set.
type part struct {
	name    string
	journal *journal
	drain   time.Duration                   // between the end of the context and the return
	run     func(ctx context.Context) error // in place of waiting for the end of the context

	mu       sync.Mutex
	notReady error // guarded by mu
	begun    bool  // guarded by mu
}

func (p *part) Name() string { return p.name }

func (p *part) Run(ctx context.Context) error {
	p.journal.add("+%s", p.name)
	p.mu.Lock()
	p.begun = true
	p.mu.Unlock()
	defer func() { p.journal.add("-%s", p.name) }()
	if p.run != nil {
		return p.run(ctx)
	}
	<-ctx.Done()
	time.Sleep(p.drain)
	return ctx.Err()
}

func (p *part) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		return errors.New("its Run was not called")
	}
	return p.notReady
}

func (p *part) setReady(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notReady = err
}

// running is a manager in a bubble.
type running struct {
	*Manager

	t      *testing.T
	cancel context.CancelFunc
	result chan error
	logs   *testlog.Buffer
}

// launch starts a manager that ends with the test at the latest.
func launch(t *testing.T, config Config) *running {
	t.Helper()
	logs := &testlog.Buffer{}
	config.IgnoreSignals = config.notify == nil
	config.Logger = slog.New(slog.NewTextHandler(logs, nil))
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Manager: m, t: t, cancel: cancel, result: make(chan error, 1), logs: logs}
	go func() { r.result <- m.Run(ctx) }() // waited for by the synctest bubble
	synctest.Wait()
	return r
}

// stop ends Run, and returns its error.
func (r *running) stop() error {
	r.cancel()
	return <-r.result
}

func (r *running) stopWithoutError() {
	r.t.Helper()
	if err := r.stop(); err != nil {
		r.t.Errorf("Run failed: %v", err)
	}
}

// pass waits for d in virtual time, and until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expectError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

var errBroken = errors.New("broken")

// lease returns a lease of a server in memory for one replica.
func lease(t *testing.T, server *apitest.Server, identity string) *leader.Config {
	t.Helper()
	cluster, err := kube.Connect(server.Config(identity))
	if err != nil {
		t.Fatal(err)
	}
	return &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator", Identity: identity}
}

// newLeaseServer returns a server with a lease without a holder.
func newLeaseServer(t *testing.T) *apitest.Server {
	t.Helper()
	server := apitest.New(apiserver.Leases())
	_, err := server.Send("POST", "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
		[]byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"shop","name":"operator"},"spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// expectHolder compares the holder of the lease, "" if it is released.
func expectHolder(t *testing.T, server *apitest.Server, want, when string) {
	t.Helper()
	if got := holder(server); got != want {
		t.Errorf("the lease is held by %q %s, want %q", got, when, want)
	}
}

// holder returns the holder of the lease.
func holder(server *apitest.Server) string {
	spec, _ := server.Object("leases", kube.Key{Namespace: "shop", Name: "operator"}).Object["spec"].(map[string]any)
	name, _ := spec["holderIdentity"].(string)
	return name
}

// steal makes another process the holder of the lease.
func steal(server *apitest.Server, by string) {
	server.Edit("leases", kube.Key{Namespace: "shop", Name: "operator"}, "kubectl", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{
			"holderIdentity": by, "leaseDurationSeconds": int64(15),
			"acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
		}
		return true
	})
}

// groups returns a part of each group, in the order LeaderOnly, Always, Caches, Servers, which is not the start order.
func groups(j *journal, change func(g Group, p *part)) []Runnable {
	var all []Runnable
	for g := LeaderOnly; g <= Servers; g++ {
		p := &part{name: strings.ReplaceAll(g.String(), " ", "-"), journal: j}
		if change != nil {
			change(g, p)
		}
		all = append(all, Runnable{Runner: p, Group: g})
	}
	return slices.Clip(all)
}
