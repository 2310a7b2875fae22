package leader

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestElector returns an Elector with the name of its client as its identity.
func newTestElector(t *testing.T, c *client, changes ...func(*Config)) *Elector {
	t.Helper()
	config := Config{
		Cluster: connect(t, c), Name: "printer", Namespace: "prod", Identity: c.name,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// running is a call of Run.
type running struct {
	cancel context.CancelFunc
	result chan error
}

// run calls Run in another goroutine.
func run(t *testing.T, e *Elector, work func(context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- e.Run(ctx, work) }() // waited for by the synctest bubble
	return r
}

// stop cancels Run and returns its error.
func (r *running) stop() error {
	r.cancel()
	return <-r.result
}

// untilDone is work that ends with its context.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// pass waits for d in virtual time, and until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// logs contains what an Elector has logged, one line for each record.
type logs struct{ buffer lockedBuffer }

func (l *logs) into(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&l.buffer, nil)) }

func (l *logs) count(text string) int { return strings.Count(l.buffer.String(), text) }

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
