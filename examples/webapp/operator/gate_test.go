package operator

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
)

// gate is between an operator and its servers. It counts writes, and kills the operator at one of them: nothing passes
// any more.
type gate struct {
	at    int  // the write at which the operator is killed, from 1; 0: none
	after bool // the write is carried out and its response is lost; otherwise it is not carried out
	kill  context.CancelFunc

	mu     sync.Mutex
	writes []string      // guarded by mu
	dead   bool          // guarded by mu
	died   chan struct{} // guarded by mu; closed when the operator is killed
}

// death returns a channel that is closed when the operator is killed.
func (g *gate) death() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.died == nil {
		g.died = make(chan struct{})
	}
	return g.died
}

var errKilled = errors.New("the operator is dead")

// pass carries out a write, unless the operator is killed before or at it.
func (g *gate) pass(write string, do func() error) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return errKilled
	}
	dies := false
	if write != "" {
		g.writes = append(g.writes, write)
		dies = len(g.writes) == g.at
		g.dead = dies
	}
	g.mu.Unlock()
	if !dies {
		return do()
	}
	defer func() {
		g.kill()
		g.death()
		close(g.died)
	}()
	if g.after {
		_ = do() // the result is lost
	}
	return errKilled
}

func (g *gate) killed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

func (g *gate) log() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

type gatedTransport struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g gatedTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	write := ""
	if r.Method != http.MethodGet {
		write = r.Method + " " + r.URL.Path
	}
	err = g.gate.pass(write, func() (err error) {
		response, err = g.next.RoundTrip(r) //nolint:bodyclose // below, the response is dropped
		return err
	})
	if err != nil && response != nil {
		_ = response.Body.Close()
		response = nil
	}
	return response, err
}

type gatedRecords struct {
	gate *gate
	next Records
}

// Ensure implements Records.
func (g gatedRecords) Ensure(ctx context.Context, record Record) error {
	return g.gate.pass("record "+record.Host, func() error { return g.next.Ensure(ctx, record) })
}

// Delete implements Records.
func (g gatedRecords) Delete(ctx context.Context, record Record) error {
	return g.gate.pass("no record "+record.Host, func() error { return g.next.Delete(ctx, record) })
}
