package poll_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestHTTPComparesBodies(t *testing.T) {
	t.Parallel()
	const (
		date    = "Date: Sat, 01 Jan 2000 00:00:10 GMT"
		old     = "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT"
		justNow = "Last-Modified: Sat, 01 Jan 2000 00:00:10 GMT"
	)
	type step struct {
		status     int
		body       string
		headers    []string
		conditions string // of the request
		want       string // what is enqueued, with its cause
	}
	listed := "listed " + shownURL + " (low)"
	added, updated, deleted := "added "+shownURL, "updated "+shownURL, "deleted "+shownURL
	for name, steps := range map[string][]step{
		"without any header": {
			{200, "red", nil, "", listed},
			{200, "red", nil, "", ""}, // no header, but the same body
			{200, "green", nil, "", updated},
			{200, "", nil, "", updated},
			{200, "", nil, "", ""},
		},
		"ETag": {
			{200, "red", []string{`ETag: "1"`}, "", listed},
			{304, "", nil, `"1"`, ""},
			{304, "", nil, `"1"`, ""},
			{200, "green", []string{`ETag: W/"2"`}, `"1"`, updated},
			{304, "", nil, `W/"2"`, ""},
			{200, "green", []string{`ETag: "3"`}, `W/"2"`, ""}, // as from another replica
			{200, "blue", []string{`ETag: "3"`}, `"3"`, updated},
			{200, "blue", nil, `"3"`, ""},
			{200, "red", nil, "", updated},
		},
		"Last-Modified": {
			{200, "red", []string{date, old}, "", listed},
			{304, "", nil, "Sat, 01 Jan 2000 00:00:00 GMT", ""},
			{200, "green", []string{date, justNow}, "Sat, 01 Jan 2000 00:00:00 GMT", updated},
			{200, "green", []string{date, justNow}, "", ""}, // it may change again in that second
			{200, "blue", []string{date, "Last-Modified: last week"}, "", updated},
			{200, "blue", []string{old}, "", ""}, // without Date, the local clock is used
			{304, "", nil, "Sat, 01 Jan 2000 00:00:00 GMT", ""},
		},
		"both": {
			{200, "red", []string{date, old, `ETag: "1"`}, "", listed},
			{304, "", nil, `"1" Sat, 01 Jan 2000 00:00:00 GMT`, ""},
		},
		"not there at first": {
			{404, "no such page", nil, "", ""},
			{404, "no such page", nil, "", ""},
			{200, "red", nil, "", added},
		},
		"removed and back again": {
			{200, "red", []string{`ETag: "1"`}, "", listed},
			{404, "no such page", nil, `"1"`, deleted},
			{404, "no such page", nil, "", ""},
			{200, "red", []string{`ETag: "1"`}, "", added}, // a conditional request would have returned 304
			{410, "", nil, `"1"`, deleted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				web := &site{}
				web.says(steps[0].status, steps[0].body, steps[0].headers...)
				s, q, stop := runHTTP(t, web, poll.HTTPConfig{})
				defer stop()
				for i, step := range steps {
					if i > 0 {
						web.says(step.status, step.body, step.headers...)
						time.Sleep(time.Minute)
					}
					t.Logf("step %d: %d %q", i, step.status, step.body)
					if step.want == "" {
						q.expect(t)
					} else {
						q.expect(t, "ns/a: "+step.want)
					}
					ready(t, s, "")
					if got := web.conditions(); got != step.conditions {
						t.Errorf("requested on condition %q, want %q", got, step.conditions)
					}
				}
			})
		})
	}
}

func TestHTTPErrorsIncludeURL(t *testing.T) {
	t.Parallel()
	fails := func(r reply) func(*http.Request) reply { return func(*http.Request) reply { return r } }
	elsewhere := func(request *http.Request) reply {
		if request.URL.Scheme == "ftp" {
			return reply{err: errors.New("unsupported protocol scheme")} // as net/http's Transport says
		}
		return reply{status: 302, headers: []string{"Location: ftp://user:password@example.com/?token=secret"}}
	}
	status := func(status int, headers ...string) func(*http.Request) reply {
		return fails(reply{status: status, body: "secret", headers: headers})
	}
	for name, test := range map[string]struct {
		answer func(*http.Request) reply
		want   string
	}{
		"server error":         {status(500), "status 500 Internal Server Error"},
		"not allowed":          {status(403), "status 403 Forbidden"},
		"no content":           {status(204), "status 204 No Content"},
		"an unknown status":    {status(599), "status 599"},
		"unchanged, unasked":   {status(304), "status 304 Not Modified"},
		"no connection":        {fails(reply{err: errors.New("refused")}), "refused"},
		"broken off":           {fails(reply{status: 200, body: "gre", err: errors.New("broken off")}), "read the body: broken off"},
		"too large":            {fails(reply{status: 200, body: "xxxxxx"}), "the body is larger than MaxBytes, 5"},
		"a redirect, too far":  {status(302, "Location: "+secretURL), "stopped after 10 redirects"},
		"a redirect elsewhere": {elsewhere, "unsupported protocol scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				web := &site{}
				web.says(200, "green")
				c := poll.HTTPConfig{MaxBytes: 5}
				s, q, stop := runHTTP(t, web, c)
				defer stop()
				q.expect(t, "ns/a: listed "+shownURL+" (low)")
				web.does(test.answer)
				time.Sleep(time.Minute)
				ready(t, s, "GET "+shownURL+": "+test.want)
				if text := s.Ready().Error(); strings.Contains(text, "secret") || strings.Contains(text, "user") {
					t.Errorf("the error has a secret: %s", text)
				}
				q.expect(t)
				web.says(200, "green")
				time.Sleep(time.Minute)
				q.expect(t)
				ready(t, s, "")
			})
		})
	}
}

func TestHTTPRespectsRetryAfter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header string
		want   time.Duration // from the failed poll to the next
	}{
		"seconds":              {429, "120", 2 * time.Minute},
		"a date":               {503, "Sat, 01 Jan 2000 00:10:00 GMT", 10 * time.Minute},
		"less than usual":      {503, "1", time.Minute},
		"a date in the past":   {503, "Fri, 31 Dec 1999 00:00:00 GMT", time.Minute},
		"nothing":              {429, "", time.Minute},
		"nonsense":             {429, "soon", time.Minute},
		"a negative one":       {429, "-5", time.Minute},
		"too long":             {429, "9223372036854775807", time.Hour},
		"not with this status": {500, "120", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var polls []time.Time
				web := &site{answer: func(*http.Request) reply {
					polls = append(polls, time.Now())
					return reply{status: test.status, headers: []string{"Retry-After: " + test.header}}
				}}
				_, _, stop := runHTTP(t, web, poll.HTTPConfig{})
				time.Sleep(test.want + time.Second)
				stop()
				if len(polls) != 2 || polls[1].Sub(polls[0]) != test.want {
					t.Errorf("polled at %s, want twice, with %s between", polls, test.want)
				}
			})
		})
	}
}

func TestHTTPSendsItsHeader(t *testing.T) {
	t.Parallel()
	web := &site{}
	web.says(200, "red")
	header := http.Header{"Authorization": {"Bearer 1"}, "Host": {"inner.example.com"}}
	poller := poll.HTTP(poll.HTTPConfig{URL: shownURL, Header: header, Client: &http.Client{Transport: web}})
	header.Set("Authorization", "changed since")
	if _, err := poller.Poll(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := web.request.Header.Get("Authorization"); got != "Bearer 1" || web.request.Host != "inner.example.com" || web.request.Method != http.MethodGet {
		t.Errorf("sent %s to %s with Authorization %q", web.request.Method, web.request.Host, got)
	}
}

func TestHTTPEndsAtTimeoutOfPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := runHTTP(t, &site{answer: func(request *http.Request) reply {
			<-request.Context().Done()
			return reply{err: request.Context().Err()}
		}}, poll.HTTPConfig{})
		defer stop()
		time.Sleep(31 * time.Second)
		ready(t, s, "no answer within Timeout, 30s: GET "+shownURL+": context deadline exceeded")
	})
}

// MaxBytes limits the decompressed size: a small response can contain a large body.
func TestHTTPLimitsDecompressedSize(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		fmt.Fprint(zip, strings.Repeat("x", 1<<20))
		_ = zip.Close()
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	defer server.Close()
	for limit, want := range map[int64]string{
		1 << 20: "", 0: "", 1<<63 - 1: "",
		1<<20 - 1: "the body is larger than MaxBytes, 1048575",
	} {
		poller := poll.HTTP(poll.HTTPConfig{URL: server.URL, MaxBytes: limit, Client: server.Client()})
		result, err := poller.Poll(t.Context(), nil)
		switch {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("limit %d: %v, want %q", limit, err, want)
			}
		case err != nil || len(result.Items) != 1 || len(result.Items[0].Content) != 1<<20:
			t.Errorf("limit %d: %v, or not the whole body", limit, err)
		}
	}
}

func TestHTTPValidateReportsEveryMistake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config poll.HTTPConfig
		want   []string
	}{
		"no URL":           {poll.HTTPConfig{MaxBytes: -1}, []string{"URL is required", "MaxBytes is -1"}},
		"no scheme":        {poll.HTTPConfig{URL: "example.com/secret"}, []string{"must begin with http:// or https://"}},
		"another scheme":   {poll.HTTPConfig{URL: "ftp://user:secret@example.com"}, []string{"must begin with http:// or https://"}},
		"no host":          {poll.HTTPConfig{URL: "https:///secret"}, []string{"and a host"}},
		"no URL at all":    {poll.HTTPConfig{URL: "https://user:secret@example.com/\x00"}, []string{"URL cannot be read: net/url: invalid control character in URL"}},
		"a broken escape":  {poll.HTTPConfig{URL: "https://example.com/%zz?token=secret"}, []string{"URL cannot be read: invalid URL escape"}},
		"nothing is wrong": {poll.HTTPConfig{URL: secretURL}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := poll.HTTP(test.config).(interface{ Validate() error }).Validate()
			errtest.Expect(t, err, test.want...)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has a secret: %v", err)
			}
			if _, pollErr := poll.HTTP(test.config).Poll(canceled(t), nil); err != nil && pollErr.Error() != err.Error() {
				t.Errorf("Poll: %v, want %v", pollErr, err)
			}
		})
	}
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Two controllers may share a Poller: they do not affect each other.
func TestHTTPHasNoSharedState(t *testing.T) {
	t.Parallel()
	web := &site{}
	web.says(200, "red", `ETag: "1"`)
	poller := poll.HTTP(poll.HTTPConfig{URL: shownURL, Client: &http.Client{Transport: web}})
	for range 2 {
		result, err := poller.Poll(t.Context(), nil)
		want := []poll.Item{{ID: shownURL, Content: []byte("red")}}
		if diff := cmp.Diff(want, result.Items); err != nil || diff != "" {
			t.Errorf("Poll: %v (-want +got):\n%s", err, diff)
		}
	}
	if web.conditions() != "" {
		t.Errorf("asked on condition %s", web.conditions())
	}
}
