package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestElector returns an Elector with the name of its client as its identity.
func newTestElector(t *testing.T, c *client, changes ...func(*Config)) *Elector {
	t.Helper()
	config := Config{
		Cluster: connect(t, c), Name: "printer", Namespace: "prod", Identity: c.name,
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

// stopWithoutError cancels Run, and reports an error that it returns.
func (r *running) stopWithoutError(t *testing.T) {
	t.Helper()
	if err := r.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// stopAtOnce is stopWithoutError, and reports virtual time that Run takes to return.
func (r *running) stopAtOnce(t *testing.T) {
	t.Helper()
	start := time.Now()
	r.stopWithoutError(t)
	if took := time.Since(start); took > 0 {
		t.Errorf("Run took %s to return", took)
	}
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
type logs struct{ buffer testlog.Buffer }

func (l *logs) into(c *Config) { c.Cluster.SetLogger(l.buffer.Logger(nil)) }

func (l *logs) count(text string) int { return l.buffer.Count(text) }
