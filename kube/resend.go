package kube

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// send sends a request, as a write of the term if that is not nil. A panic or runtime.Goexit in a transport or wrapper
// of the user's rest.Config fails the request: many requests are made by goroutines of the library.
func (t *callTransport) send(req *http.Request, call Call, term *leadership.Term) (resp *http.Response, err error) {
	if !t.custom {
		return t.sendRenewed(req, call, term)
	}
	failed := t.cluster.guard.Call("the transport", func() {
		resp, err = t.sendRenewed(req, call, term) //nolint:bodyclose // the caller closes it
	}, nil)
	if failed != nil {
		return nil, fmt.Errorf("%s %s: the request may have been sent: %w", req.Method, req.URL.Path, failed)
	}
	return resp, err
}

// sendRenewed sends a request, and again if the credentials were renewed in the meantime.
func (t *callTransport) sendRenewed(req *http.Request, call Call, term *leadership.Term) (*http.Response, error) {
	t.tokens.sent(bearerToken(req))
	base := t.roots.current()
	resp, err := t.sendOnce(req, call, term)
	if renewed := t.renewed(req, base, resp, err); renewed != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		resp, err = t.sendOnce(renewed, call, term)
	}
	if err == nil {
		t.cluster.hideInError(req, resp)
	}
	return resp, err
}

func (t *callTransport) sendOnce(req *http.Request, call Call, term *leadership.Term) (*http.Response, error) {
	if term == nil {
		return t.next.RoundTrip(req)
	}
	return t.terms.Send(req, term, func(status int) bool {
		call.Status = status
		return call.connects()
	})
}

// renewed returns a request that must be sent in place of req, or nil. req was sent with base, and the API server has
// not processed it: because its certificate could not be verified, or because it rejected the token, and the file of
// the root certificates or of the token has changed since then. client-go reads these files only every 5 minutes and
// every minute. Until then informers would lose their watches, and the leader its lease.
func (t *callTransport) renewed(
	req *http.Request, base http.RoundTripper, resp *http.Response, err error,
) *http.Request {
	authorization := ""
	switch {
	case err != nil:
		if !t.roots.reload(err, base) {
			return nil
		}
	case resp.StatusCode == http.StatusUnauthorized:
		token := t.tokens.replacement(bearerToken(req))
		if token == "" {
			return nil
		}
		authorization = "Bearer " + token
	default:
		return nil
	}
	clone := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil
		}
		if clone.Body, err = req.GetBody(); err != nil {
			return nil
		}
	}
	if authorization != "" {
		clone.Header.Set("Authorization", authorization)
	}
	return clone
}

// bearerToken returns the token of a request, or "".
func bearerToken(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return ""
}

// tokenFile is a file with a token that is replaced from time to time.
type tokenFile struct {
	path string // "" if there is no such file; immutable

	mu    sync.Mutex
	known [2]string // tokens that the file had, the latest first; guarded by mu
}

// sent records the token of a request if it is the one of the file. Requests may have other tokens, of other users,
// which must not be replaced.
func (f *tokenFile) sent(token string) {
	if f.path == "" || token == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.known[:], token) && f.read() == token {
		f.known = [2]string{token, f.known[0]}
	}
}

// replacement returns the token that the file has instead of one that was rejected, or "".
func (f *tokenFile) replacement(rejected string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rejected == "" || !slices.Contains(f.known[:], rejected) {
		return ""
	}
	token := f.read()
	if token == rejected {
		return ""
	}
	if token != f.known[0] && token != "" {
		f.known = [2]string{token, rejected}
	}
	return token
}

// read returns the token in the file, or "".
func (f *tokenFile) read() string {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
