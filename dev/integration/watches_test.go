package integration

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// heldWatches can hold back what watches of a resource bring.
type heldWatches struct {
	resource string
	lag      time.Duration // for which everything is held back

	mu   sync.Mutex
	held chan struct{} // guarded by mu; nil: nothing is held back; closed when the watches break
}

func (h *heldWatches) wrap(next http.RoundTripper) http.RoundTripper {
	return watchHolder{h, next}
}

// hold holds back what comes from now on.
func (h *heldWatches) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = make(chan struct{})
}

// breakHeld breaks the watches of which something is held back. What they had brought is lost.
func (h *heldWatches) breakHeld() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.held)
	h.held = nil
}

type watchHolder struct {
	*heldWatches
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h watchHolder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") == "true" && strings.HasSuffix(req.URL.Path, h.resource) {
		resp.Body = &heldBody{resp.Body, h.heldWatches, req.Context()}
	}
	return resp, err
}

// heldBody is the answer to a watch. It carries the request's context as http.Request does.
type heldBody struct {
	io.ReadCloser
	watches *heldWatches
	ctx     context.Context //nolint:containedctx // of the request
}

var errWatchBroke = errors.New("the watch broke")

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watches.mu.Lock()
	held := b.watches.held
	b.watches.mu.Unlock()
	if held == nil || err != nil {
		pause(b.ctx, b.watches.lag)
		return n, err
	}
	select {
	case <-held:
	case <-b.ctx.Done():
	}
	return 0, errWatchBroke
}
