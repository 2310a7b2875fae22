package source

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

// DefaultMaxBytes is the default of HTTPConfig.MaxBytes.
const DefaultMaxBytes = 16 << 20

// maxDrained is how much of a body that nobody wants is read, so that its connection can be
// used again.
const maxDrained = 64 << 10

// HTTPConfig says what HTTP fetches. It is taken by value: HTTP neither keeps nor changes the
// caller's.
type HTTPConfig struct {
	// URL is what is fetched, with GET. It may have a user, a password and a query, which
	// errors, logs and causes do not show. Required.
	URL string
	// Header is sent with each request, such as Authorization or Accept. Default: none. For
	// credentials that change, give Client a Transport that adds them.
	Header http.Header
	// Client makes the requests, and says what becomes of redirects. Default: a client on
	// http.DefaultTransport, which honours the proxy variables of the environment. Its
	// requests end with the poll's context, so PollConfig.Timeout limits them.
	Client *http.Client
	// MaxBytes limits the body, after decompression: a longer one is an error. Default
	// 16 MiB.
	MaxBytes int64
	// Split finds the items in a body, which is its own. It is called only for a body that
	// is another than the last. Default nil: the body is one item, whose ID is the URL
	// without credentials and query.
	Split func(body []byte) ([]Item, error)
	// Keys are the keys that each item concerns that has none of its own. Default: none.
	Keys []kube.Key
}

// HTTP is a Poller of a document at a URL.
//
// Flow: what the last answer said of ETag and Last-Modified is sent back as If-None-Match and
// If-Modified-Since, the latter only where Last-Modified is old enough to be relied on.
//  1. 304: nothing has changed.
//  2. 200: the body decides. One that is the same as the last is unchanged, whatever the
//     headers say.
//  3. 404 and 410: there are no items, which removes those that were there; it is no error.
//  4. Every other status is an error. For 429 and 503 the next poll waits for as long as
//     Retry-After says.
//
// Redirects and compression are as net/http does them.
//
// Errors: they name the URL without credentials and query.
func HTTP(config HTTPConfig) Poller {
	p := &httpPoller{config: config}
	p.config.MaxBytes = cmp.Or(config.MaxBytes, DefaultMaxBytes)
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
		errs = append(errs, fmt.Errorf("HTTPConfig.MaxBytes is %d: it cannot be negative (0 means %d)", p.config.MaxBytes, DefaultMaxBytes))
	}
	p.problem = errors.Join(errs...)
	return p
}

// httpPoller is immutable.
type httpPoller struct {
	config  HTTPConfig
	shown   string // the URL, as people may see it
	problem error
}

// httpToken is what is remembered of an answer.
type httpToken struct {
	etag, modified string
	sum            [sha256.Size]byte // of the body
}

// Validate returns the mistakes in the HTTPConfig.
func (p *httpPoller) Validate() error { return p.problem }

// concernsNobody is true when no item can have a key.
func (p *httpPoller) concernsNobody() bool { return p.config.Split == nil && len(p.config.Keys) == 0 }

// Poll implements Poller.
func (p *httpPoller) Poll(ctx context.Context, token any) (PollResult, error) {
	if p.problem != nil {
		return PollResult{}, p.problem
	}
	result, err := p.fetch(ctx, token)
	if err != nil {
		return PollResult{}, fmt.Errorf("GET %s: %w", p.shown, err)
	}
	return result, nil
}

func (p *httpPoller) fetch(ctx context.Context, token any) (PollResult, error) {
	last, known := token.(httpToken)
	request, err := p.request(ctx, last)
	if err != nil {
		return PollResult{}, withoutURL(err)
	}
	response, err := p.config.Client.Do(request)
	if err != nil {
		return PollResult{}, withoutURL(err)
	}
	defer response.Body.Close()
	switch status := response.StatusCode; {
	case status == http.StatusOK:
		return p.read(response, last, known)
	case status == http.StatusNotModified && (last.etag != "" || last.modified != ""):
		return PollResult{Unchanged: true, Token: last}, nil
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxDrained) // what it says does not matter
	switch status := response.StatusCode; status {
	case http.StatusNotFound, http.StatusGone:
		// No token: what comes back may have the ETag that it had.
		return PollResult{}, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return PollResult{}, NextPollAfter(retryAfterOf(response), statusError(status))
	default:
		return PollResult{}, statusError(status)
	}
}

func (p *httpPoller) request(ctx context.Context, last httpToken) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.URL, nil)
	if err != nil {
		return nil, err
	}
	if p.config.Header != nil {
		request.Header = p.config.Header.Clone()
		request.Host = cmp.Or(request.Header.Get("Host"), request.Host) // net/http ignores it among headers
	}
	if last.etag != "" {
		request.Header.Set("If-None-Match", last.etag)
	}
	if last.modified != "" {
		request.Header.Set("If-Modified-Since", last.modified)
	}
	return request, nil
}

// read reads the body of a 200.
func (p *httpPoller) read(response *http.Response, last httpToken, known bool) (PollResult, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, min(p.config.MaxBytes, math.MaxInt64-1)+1))
	if err != nil {
		return PollResult{}, fmt.Errorf("read the body: %w", err)
	}
	if int64(len(body)) > p.config.MaxBytes {
		return PollResult{}, fmt.Errorf("the body is larger than MaxBytes, %d", p.config.MaxBytes)
	}
	token := httpToken{etag: response.Header.Get("ETag"), modified: reliable(response.Header), sum: sha256.Sum256(body)}
	if known && token.sum == last.sum {
		return PollResult{Unchanged: true, Token: token}, nil
	}
	items := []Item{{ID: p.shown, Content: body}}
	if p.config.Split != nil {
		if items, err = p.config.Split(body); err != nil {
			return PollResult{}, fmt.Errorf("split the body into items: %w", err)
		}
	}
	for i := range items {
		if len(items[i].Keys) == 0 {
			items[i].Keys = p.config.Keys
		}
	}
	return PollResult{Items: items, Token: token}, nil
}

// reliable returns Last-Modified when it is at least a second before the answer. It counts in
// seconds: a document that was changed in the second of the answer may have been changed again
// in the same one, and a server that is asked about that second would say that it was not.
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

// retryAfterOf reads Retry-After, which counts seconds or is a date. 0: it says nothing.
func retryAfterOf(response *http.Response) time.Duration {
	text := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(MaxRetryAfter/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(time.Until(date), 0)
	}
	return 0
}

// statusError names a status in our words: those of the server may be anything.
func statusError(status int) error {
	return fmt.Errorf("status %d %s", status, http.StatusText(status))
}

// withoutURL takes the URL out of an error of net/http and net/url: it has the query, and with
// it what may be a secret.
func withoutURL(err error) error {
	for {
		failed, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = failed.Err
	}
}
