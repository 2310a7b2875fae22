package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestClassifyStatusErrors(t *testing.T) {
	t.Parallel()
	onlyReason := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason}}
	}
	for _, test := range []struct {
		err  error
		want retry.Class
	}{
		{errtest.Conflict(), retry.Conflict},
		{onlyReason(metav1.StatusReasonConflict), retry.Conflict},
		{errtest.ApplyConflict(".spec.replicas"), retry.Invalid},
		{apierrors.NewAlreadyExists(errtest.Pods(), "web"), retry.Default},
		{apierrors.NewNotFound(errtest.Pods(), "web"), retry.Default},
		{apierrors.NewTooManyRequests("slower", 0), retry.Throttled},
		{errtest.Response(429, 0), retry.Throttled},
		{errtest.Response(503, 7), retry.Throttled},
		{errtest.Response(503, 0), retry.Transient},
		{apierrors.NewServerTimeout(errtest.Pods(), "get", 2), retry.Throttled},
		{apierrors.NewServerTimeout(errtest.Pods(), "get", 0), retry.Transient},
		{apierrors.NewTimeoutError("etcd", 0), retry.Transient},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), retry.Transient},
		{errtest.Response(502, 0), retry.Transient},
		{errtest.Response(599, 0), retry.Transient},
		{apierrors.NewResourceExpired("too old"), retry.Transient},
		{apierrors.NewUnauthorized("who?"), retry.Forbidden},
		{apierrors.NewForbidden(errtest.Pods(), "web", errors.New("no")), retry.Forbidden},
		{onlyReason(metav1.StatusReasonForbidden), retry.Forbidden},
		{errtest.NamespaceTerminating("shop"), retry.NamespaceTerminating},
		{errtest.Invalid("spec"), retry.Invalid},
		{apierrors.NewBadRequest("what?"), retry.Invalid},
		{apierrors.NewRequestEntityTooLargeError("3 MB"), retry.Invalid},
		{apierrors.NewMethodNotSupported(errtest.Pods(), "get"), retry.Invalid},
		{errtest.Response(418, 0), retry.Default},
	} {
		if got := retry.Classify(test.err); got != test.want {
			t.Errorf("%v: class %q, want %q", test.err, got, test.want)
		}
		if got := retry.Classify(fmt.Errorf("update the status: %w", test.err)); got != test.want {
			t.Errorf("%v, wrapped: class %q, want %q", test.err, got, test.want)
		}
	}
}

// panickingError is an error whose methods panic, like those of a nil pointer.
type panickingError struct{}

func (panickingError) Error() string         { panic("Error") }
func (panickingError) Status() metav1.Status { panic("Status") }

// endless wraps itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// noError is an error value that does not report a failure.
type noError struct{}

func (noError) Error() string           { return "run me again" }
func (noError) RetryClass() retry.Class { return "" }

func parseError() error {
	_, _, err := net.ParseCIDR("10.0.0.0/33")
	return err
}

func splitError() error {
	_, _, err := net.SplitHostPort("shop")
	return fmt.Errorf("spec.address: %w", err)
}

func TestClassifyOtherErrors(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	call := func(err error) error { return &url.Error{Op: "Get", URL: "https://localhost", Err: err} }
	for name, test := range map[string]struct {
		err  error
		want retry.Class
	}{
		"nil":                            {nil, ""},
		"unknown":                        {errors.New("unknown error"), retry.Default},
		"refused":                        {call(refused), retry.Transient},
		"refused, bare":                  {syscall.ECONNREFUSED, retry.Transient},
		"no such file":                   {&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, retry.Default},
		"reset":                          {fmt.Errorf("read: %w", syscall.ECONNRESET), retry.Transient},
		"no such host":                   {&net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}, retry.Transient},
		"unexpected EOF":                 {fmt.Errorf("read the response: %w", io.ErrUnexpectedEOF), retry.Transient},
		"EOF":                            {call(io.EOF), retry.Transient},
		"request timeout":                {call(context.DeadlineExceeded), retry.Transient},
		"HTTP/2":                         {fmt.Errorf("read: %w", errors.New("http2: client connection lost")), retry.Transient},
		"any failed request":             {call(errors.New("tls: no")), retry.Transient},
		"cancelled":                      {call(context.Canceled), retry.Default},
		"invalid URL":                    {&url.Error{Op: "parse", URL: ":", Err: errors.New("missing protocol")}, retry.Default},
		"invalid CIDR":                   {parseError(), retry.Default},
		"invalid address":                {splitError(), retry.Default},
		"no such network":                {net.UnknownNetworkError("unknown"), retry.Default},
		"invalid address to dial":        {&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "missing port in address", Addr: "x"}}, retry.Transient},
		"WithClass":                      {retry.WithClass(errtest.Conflict(), "quota"), "quota"},
		"WithClass, wrapped":             {fmt.Errorf("x: %w", retry.WithClass(errors.New("x"), retry.Terminal)), retry.Terminal},
		"WithClass twice":                {retry.WithClass(retry.WithClass(errors.New("x"), "inner"), "outer"), "outer"},
		"empty class":                    {noError{}, retry.Default},
		"methods that panic":             {fmt.Errorf("x: %w", error(panickingError{})), retry.Default},
		"a nil pointer":                  {(*apierrors.StatusError)(nil), retry.Default},
		"wraps itself":                   {endless{}, retry.Default},
		"joined, wraps itself":           {errors.Join(endless{}, errtest.Conflict()), retry.Default},
		"joined with nil":                {errors.Join(nil, errtest.Conflict()), retry.Conflict},
		"more permanent first":           {errors.Join(errtest.Invalid("spec"), errtest.Conflict()), retry.Invalid},
		"more permanent last":            {errors.Join(errtest.Conflict(), errtest.Invalid("spec")), retry.Invalid},
		"unknown and conflict":           {errors.Join(errtest.Conflict(), errors.New("x")), retry.Default},
		"terminating and unknown":        {errors.Join(errtest.NamespaceTerminating("shop"), errors.New("x")), retry.Default},
		"terminating twice":              {errors.Join(errtest.NamespaceTerminating("shop"), errtest.NamespaceTerminating("bank")), retry.NamespaceTerminating},
		"unknown and forbidden":          {errors.Join(errors.New("x"), errtest.Response(403, 0)), retry.Forbidden},
		"user's class and unknown":       {errors.Join(retry.WithClass(errors.New("x"), "quota"), errors.New("y")), "quota"},
		"terminal and invalid":           {errors.Join(errtest.Invalid("a"), retry.WithClass(errtest.Conflict(), retry.Terminal)), retry.Terminal},
		"nested joins":                   {errors.Join(errtest.Conflict(), fmt.Errorf("x: %w", errors.Join(errtest.Conflict(), errtest.Response(503, 0)))), retry.Transient},
		"an aggregate":                   {utilerrors.NewAggregate([]error{errtest.Conflict(), errtest.Response(403, 0)}), retry.Forbidden},
		"empty class and conflict":       {errors.Join(noError{}, errtest.Conflict()), retry.Conflict},
		"fmt.Errorf with a known error":  {fmt.Errorf("%w: %w", errors.New("the database has changed"), errtest.Conflict()), retry.Conflict},
		"fmt.Errorf with unknown errors": {fmt.Errorf("%w: %w", errors.New("x"), errors.New("y")), retry.Default},
	} {
		if got := retry.Classify(test.err); got != test.want {
			t.Errorf("%s: class %q, want %q", name, got, test.want)
		}
	}
	if retry.WithClass(nil, retry.Terminal) != nil {
		t.Error("WithClass(nil, Terminal) is not nil")
	}
}

// The errors of net/http come from real connections.
func TestConnectionErrorsAreTransient(t *testing.T) {
	t.Parallel()
	aborting := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(aborting.Close)
	truncating := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short") // less than Content-Length
	}))
	t.Cleanup(truncating.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for name, test := range map[string]struct {
		url     string
		timeout time.Duration
	}{
		"closed":     {url: "http://127.0.0.1:0"}, // no server can listen on port 0
		"aborting":   {url: aborting.URL},
		"truncating": {url: truncating.URL},
		"silent":     {silent.URL, 100 * time.Millisecond},
	} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if test.timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, test.timeout)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close() // reading the body has failed
		}
		cancel()
		if errors.Is(err, context.DeadlineExceeded) != (test.timeout > 0) {
			t.Errorf("%s: %v", name, err)
		}
		if got := retry.Classify(err); got != retry.Transient {
			t.Errorf("%s: class %q of %v, want %q", name, got, err, retry.Transient)
		}
	}
}

func TestLargeErrorIsBounded(t *testing.T) {
	t.Parallel()
	err := errtest.Conflict()
	for i := range 30 { // 2^30 errors
		err = errors.Join(err, err, errors.New(strconv.Itoa(i)))
	}
	if got := retry.Classify(err); got != retry.Default {
		t.Errorf("class %q, want %q", got, retry.Default)
	}
	_, _ = usercode.RetryAfter(err) // must return
}
