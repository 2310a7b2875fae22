package poll

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// defaultMaxBytes is the default of HTTPConfig.MaxBytes.
const defaultMaxBytes = 16 << 20

// maxDrained is how many bytes of an ignored body are read, so that its connection can be reused.
const maxDrained = 64 << 10

// HTTPConfig configures HTTP. HTTP copies it and does not change the caller's copy.
type HTTPConfig struct {
	// URL is fetched with GET. It may have a user, a password and a query; errors, logs and causes do not show them.
	// Required.
	URL string
	// Header is sent with each request, such as Authorization or Accept. Default: empty. For credentials that change,
	// set a Client with a Transport that adds them.
	Header http.Header
	// Client makes the requests and decides whether redirects are followed. Default: a client on http.DefaultTransport,
	// which uses the proxy variables of the environment. Requests have the poll's context, so Config.Timeout limits
	// them.
	Client *http.Client
	// MaxBytes limits the size of the body after decompression: a longer body is an error. Default 16 MiB.
	MaxBytes int64
	// Split returns the items in a body; it may keep and change the body. It is called only if the body differs from
	// the last one. Default nil: the body is one item with the URL, without credentials and query, as its ID.
	Split func(body []byte) ([]Item, error)
	// Keys are the keys of each item without Keys. Default: none.
	Keys []kube.Key
}

// HTTP returns a Poller that fetches a document from a URL.
//
// Flow: the ETag and Last-Modified of the last response are sent as If-None-Match and If-Modified-Since, the latter
// only if Last-Modified is old enough to be reliable.
//  1. 304: nothing has changed.
//  2. 200: the body decides. A body that equals the last one is unchanged, whatever the headers say.
//  3. 404 and 410: there are no items, so existing items are removed. It is not an error.
//  4. Every other status is an error. After 429 and 503, the next poll waits at least as long as Retry-After says.
//
// net/http handles redirects and compression.
//
// Errors: they contain the URL without credentials and query.
func HTTP(config HTTPConfig) Poller {
	p := &httpPoller{config: config}
	p.config.MaxBytes = cmp.Or(config.MaxBytes, defaultMaxBytes)
	p.config.Client = cmp.Or(config.Client, &http.Client{})
	p.config.Header = config.Header.Clone()
	p.config.Keys = slices.Clone(config.Keys)
	var errs []error
	if config.URL == "" {
		errs = append(errs, errors.New("HTTPConfig.URL is required"))
	} else if address, err := url.Parse(config.URL); err != nil {
		errs = append(errs, fmt.Errorf("HTTPConfig.URL cannot be read: %w", withoutURL(err)))
	} else if address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		errs = append(errs, errors.New("HTTPConfig.URL must begin with http:// or https:// and a host"))
	} else {
		p.shown = (&url.URL{Scheme: address.Scheme, Host: address.Host, Path: address.Path}).String()
	}
	if p.config.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("HTTPConfig.MaxBytes is %d: it cannot be negative (0 means %d)",
			p.config.MaxBytes, defaultMaxBytes))
	}
	p.problem = errors.Join(errs...)
	return p
}

// httpPoller is immutable.
type httpPoller struct {
	config  HTTPConfig
	shown   string // the URL without credentials and query
	problem error
}

// httpToken is the part of a response that is kept for the next poll.
type httpToken struct {
	etag, modified string
	sum            [sha256.Size]byte // of the body
}

// Validate returns the mistakes in the HTTPConfig.
func (p *httpPoller) Validate() error { return p.problem }

// enqueuesNothing reports whether no item can have a key.
func (p *httpPoller) enqueuesNothing() bool { return p.config.Split == nil && len(p.config.Keys) == 0 }

// Poll implements Poller.
func (p *httpPoller) Poll(ctx context.Context, token any) (Result, error) {
	if p.problem != nil {
		return Result{}, p.problem
	}
	result, err := p.fetch(ctx, token)
	if err != nil {
		return Result{}, fmt.Errorf("GET %s: %w", p.shown, err)
	}
	return result, nil
}

func (p *httpPoller) fetch(ctx context.Context, token any) (Result, error) {
	last, known := token.(httpToken)
	request, err := p.request(ctx, last)
	if err != nil {
		return Result{}, withoutURL(err)
	}
	response, err := p.config.Client.Do(request)
	if err != nil {
		return Result{}, withoutURL(err)
	}
	defer response.Body.Close()
	switch status := response.StatusCode; {
	case status == http.StatusOK:
		return p.read(response, last, known)
	case status == http.StatusNotModified && (last.etag != "" || last.modified != ""):
		return Result{Unchanged: true, Token: last}, nil
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxDrained) // the body is ignored
	switch status := response.StatusCode; status {
	case http.StatusNotFound, http.StatusGone:
		// No token: a document that exists again may have the same ETag as before.
		return Result{}, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return Result{}, &retryAfterError{error: statusError(status), after: retryAfterOf(response)}
	default:
		return Result{}, statusError(status)
	}
}

func (p *httpPoller) request(ctx context.Context, last httpToken) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.URL, nil)
	if err != nil {
		return nil, err
	}
	if p.config.Header != nil {
		request.Header = p.config.Header.Clone()
		request.Host = cmp.Or(request.Header.Get("Host"), request.Host) // net/http ignores Host in Header
	}
	if last.etag != "" {
		request.Header.Set("If-None-Match", last.etag)
	}
	if last.modified != "" {
		request.Header.Set("If-Modified-Since", last.modified)
	}
	return request, nil
}

// read reads the body of a response with status 200.
func (p *httpPoller) read(response *http.Response, last httpToken, known bool) (Result, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, min(p.config.MaxBytes, math.MaxInt64-1)+1))
	if err != nil {
		return Result{}, fmt.Errorf("read the body: %w", err)
	}
	if int64(len(body)) > p.config.MaxBytes {
		return Result{}, fmt.Errorf("the body is larger than MaxBytes, %d", p.config.MaxBytes)
	}
	token := httpToken{etag: response.Header.Get("ETag"), modified: reliable(response.Header), sum: sha256.Sum256(body)}
	if known && token.sum == last.sum {
		return Result{Unchanged: true, Token: token}, nil
	}
	items := []Item{{ID: p.shown, Content: body}}
	if p.config.Split != nil {
		if items, err = p.config.Split(body); err != nil {
			return Result{}, fmt.Errorf("split the body into items: %w", err)
		}
	}
	for i := range items {
		if len(items[i].Keys) == 0 {
			items[i].Keys = p.config.Keys
		}
	}
	return Result{Items: items, Token: token}, nil
}

// reliable returns Last-Modified if it is at least one second before the response, otherwise "". The header has a
// resolution of one second: a document that was changed in the second of the response may change again in the same
// second, and the server would answer 304 to a condition with that second.
func reliable(header http.Header) string {
	modified := header.Get("Last-Modified")
	changed, err := http.ParseTime(modified)
	if err != nil {
		return ""
	}
	answered, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		answered = time.Now()
	}
	if answered.Sub(changed) < time.Second {
		return ""
	}
	return modified
}

// retryAfterOf returns the wait of the Retry-After header, which is a number of seconds or a date. It returns 0 if the
// header is missing or invalid.
func retryAfterOf(response *http.Response) time.Duration {
	text := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(time.Until(date), 0)
	}
	return 0
}

// statusError returns an error with the status code and the text of net/http: the server's own text may be anything.
func statusError(status int) error {
	return fmt.Errorf("status %d %s", status, http.StatusText(status))
}

// withoutURL removes the URL from an error of net/http or net/url: the URL has the query, which may contain a secret.
func withoutURL(err error) error {
	for {
		failed, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = failed.Err
	}
}

// retryAfterError is an error with a Retry-After, which usercode.RetryAfter returns.
type retryAfterError struct {
	error
	after time.Duration
}

func (e *retryAfterError) Unwrap() error             { return e.error }
func (e *retryAfterError) RetryAfter() time.Duration { return e.after }
