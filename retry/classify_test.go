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

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/retry"
)

func pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func conflict() error { return apierrors.NewConflict(pods(), "web", errors.New("it has changed")) }

func invalid(fields ...string) error {
	var list field.ErrorList
	for _, f := range fields {
		list = append(list, field.Invalid(field.NewPath(f), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", list)
}

func answer(code int, retryAfter int) error {
	return apierrors.NewGenericServerResponse(code, "PUT", pods(), "web", "", retryAfter, true)
}

// applyConflict is the answer to an apply of fields that others own.
func applyConflict(fields ...string) error {
	var causes []metav1.StatusCause
	for _, f := range fields {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: f})
	}
	return apierrors.NewApplyConflict(causes, "conflict with \"kubectl\"")
}

func TestAnswersOfTheAPIServerHaveClasses(t *testing.T) {
	t.Parallel()
	onlyReason := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason}}
	}
	for _, test := range []struct {
		err  error
		want retry.Class
	}{
		{conflict(), retry.Conflict},
		{onlyReason(metav1.StatusReasonConflict), retry.Conflict},
		{applyConflict(".spec.replicas"), retry.Invalid},
		{apierrors.NewAlreadyExists(pods(), "web"), retry.Default},
		{apierrors.NewNotFound(pods(), "web"), retry.Default},
		{apierrors.NewTooManyRequests("slower", 0), retry.Throttled},
		{answer(429, 0), retry.Throttled},
		{answer(503, 7), retry.Throttled},
		{answer(503, 0), retry.Transient},
		{apierrors.NewServerTimeout(pods(), "get", 2), retry.Throttled},
		{apierrors.NewServerTimeout(pods(), "get", 0), retry.Transient},
		{apierrors.NewTimeoutError("etcd", 0), retry.Transient},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), retry.Transient},
		{answer(502, 0), retry.Transient},
		{answer(599, 0), retry.Transient},
		{apierrors.NewResourceExpired("too old"), retry.Transient},
		{apierrors.NewUnauthorized("who?"), retry.Forbidden},
		{apierrors.NewForbidden(pods(), "web", errors.New("no")), retry.Forbidden},
		{onlyReason(metav1.StatusReasonForbidden), retry.Forbidden},
		{invalid("spec"), retry.Invalid},
		{apierrors.NewBadRequest("what?"), retry.Invalid},
		{apierrors.NewRequestEntityTooLargeError("3 MB"), retry.Invalid},
		{apierrors.NewMethodNotSupported(pods(), "get"), retry.Invalid},
		{answer(418, 0), retry.Default},
	} {
		if got := retry.Classify(test.err); got != test.want {
			t.Errorf("%v: class %q, want %q", test.err, got, test.want)
		}
		if got := retry.Classify(fmt.Errorf("update the status: %w", test.err)); got != test.want {
			t.Errorf("%v, wrapped: class %q, want %q", test.err, got, test.want)
		}
	}
}

// panickingError is an error whose methods panic, as those of a nil pointer do.
type panickingError struct{}

func (panickingError) Error() string         { panic("Error") }
func (panickingError) Status() metav1.Status { panic("Status") }

// endless wraps itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// noError is an error only in name, as a request for another run is.
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

func TestOtherErrorsHaveClasses(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	call := func(err error) error { return &url.Error{Op: "Get", URL: "https://localhost", Err: err} }
	for name, test := range map[string]struct {
		err  error
		want retry.Class
	}{
		"nothing":                   {nil, ""},
		"unknown":                   {errors.New("no more coffee"), retry.Default},
		"refused":                   {call(refused), retry.Transient},
		"refused, bare":             {syscall.ECONNREFUSED, retry.Transient},
		"no such file":              {&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, retry.Default},
		"reset":                     {fmt.Errorf("read: %w", syscall.ECONNRESET), retry.Transient},
		"no such host":              {&net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}, retry.Transient},
		"cut":                       {fmt.Errorf("read the answer: %w", io.ErrUnexpectedEOF), retry.Transient},
		"end":                       {call(io.EOF), retry.Transient},
		"request timeout":           {call(context.DeadlineExceeded), retry.Transient},
		"HTTP/2":                    {fmt.Errorf("read: %w", errors.New("http2: client connection lost")), retry.Transient},
		"any failed request":        {call(errors.New("tls: no")), retry.Transient},
		"cancelled":                 {call(context.Canceled), retry.Default},
		"a URL that is none":        {&url.Error{Op: "parse", URL: ":", Err: errors.New("missing protocol")}, retry.Default},
		"a CIDR that is none":       {parseError(), retry.Default},
		"an address that is none":   {splitError(), retry.Default},
		"no such network":           {net.UnknownNetworkError("carrier pigeon"), retry.Default},
		"no host to dial":           {&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "missing port in address", Addr: "x"}}, retry.Transient},
		"marked":                    {retry.WithClass(conflict(), "quota"), "quota"},
		"marked below":              {fmt.Errorf("x: %w", retry.WithClass(errors.New("x"), retry.Terminal)), retry.Terminal},
		"marked twice":              {retry.WithClass(retry.WithClass(errors.New("x"), "inner"), "outer"), "outer"},
		"no failure":                {noError{}, retry.Default},
		"methods that panic":        {fmt.Errorf("x: %w", error(panickingError{})), retry.Default},
		"a nil pointer":             {(*apierrors.StatusError)(nil), retry.Default},
		"without end":               {endless{}, retry.Default},
		"joined without end":        {errors.Join(endless{}, conflict()), retry.Default},
		"joined with nil":           {errors.Join(nil, conflict()), retry.Conflict},
		"the more permanent first":  {errors.Join(invalid("spec"), conflict()), retry.Invalid},
		"the more permanent last":   {errors.Join(conflict(), invalid("spec")), retry.Invalid},
		"unknown beside conflict":   {errors.Join(conflict(), errors.New("x")), retry.Default},
		"unknown beside forbidden":  {errors.Join(errors.New("x"), answer(403, 0)), retry.Forbidden},
		"user's beside unknown":     {errors.Join(retry.WithClass(errors.New("x"), "quota"), errors.New("y")), "quota"},
		"terminal beside all":       {errors.Join(invalid("a"), retry.WithClass(conflict(), retry.Terminal)), retry.Terminal},
		"joined within joined":      {errors.Join(conflict(), fmt.Errorf("x: %w", errors.Join(conflict(), answer(503, 0)))), retry.Transient},
		"an aggregate":              {utilerrors.NewAggregate([]error{conflict(), answer(403, 0)}), retry.Forbidden},
		"no failure beside one":     {errors.Join(noError{}, conflict()), retry.Conflict},
		"several words for one":     {fmt.Errorf("%w: %w", errors.New("the database has changed"), conflict()), retry.Conflict},
		"several words for unknown": {fmt.Errorf("%w: %w", errors.New("x"), errors.New("y")), retry.Default},
	} {
		if got := retry.Classify(test.err); got != test.want {
			t.Errorf("%s: class %q, want %q", name, got, test.want)
		}
	}
	if retry.WithClass(nil, retry.Terminal) != nil {
		t.Error("nothing has become an error by being given a class")
	}
}

// What net/http returns, from real connections.
func TestErrorsOfRealConnectionsAreTransient(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(hangsUp.Close)
	cutsOff := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only that") // what is missing is the point
	}))
	t.Cleanup(cutsOff.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	for name, server := range map[string]*httptest.Server{"closed": closed, "hangs up": hangsUp, "cuts off": cutsOff, "silent": silent} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it failed before, or the test does
		}
		cancel()
		if got := retry.Classify(err); got != retry.Transient {
			t.Errorf("%s: class %q of %v, want %q", name, got, err, retry.Transient)
		}
	}
}

type busy time.Duration

func (busy) Error() string               { return "busy" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func TestRetryAfterIsTheLongestThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"nothing":        {nil, 0},
		"not asked":      {errors.Join(conflict(), errors.New("x")), 0},
		"asked":          {fmt.Errorf("get: %w", answer(429, 3)), 3 * time.Second},
		"asked twice":    {errors.Join(answer(429, 3), answer(503, 8), answer(429, 5)), 8 * time.Second},
		"other services": {errors.Join(busy(time.Minute), answer(429, 3)), time.Minute},
		"marked":         {retry.WithClass(answer(429, 3), retry.Default), 3 * time.Second},
		"panics":         {errors.Join(answer(429, 3), panickingError{}), 3 * time.Second},
	} {
		got, ok := retry.RetryAfter(test.err)
		if got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %s, %t, want %s", name, got, ok, test.want)
		}
	}
}

func TestFieldsAreThoseThatTheServerNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"nothing":     {nil, nil},
		"not invalid": {conflict(), nil},
		"invalid":     {fmt.Errorf("x: %w", invalid("spec", "status")), []string{"spec", "status"}},
		"named twice": {errors.Join(invalid("a", "b"), invalid("b", "c")), []string{"a", "b", "c"}},
		"apply":       {applyConflict(".spec.replicas"), []string{".spec.replicas"}},
		"without end": {endless{}, nil},
	} {
		if diff := cmp.Diff(test.want, retry.Fields(test.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnErrorOfManyEndsSoon(t *testing.T) {
	t.Parallel()
	err := conflict()
	for i := range 30 { // 2^30 errors
		err = errors.Join(err, err, errors.New(strconv.Itoa(i)))
	}
	if got := retry.Classify(err); got != retry.Default {
		t.Errorf("class %q, want %q", got, retry.Default)
	}
	_, _ = retry.RetryAfter(err) // must end
	_ = retry.Fields(err)
}
