package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

func notFound() error { return apierrors.NewNotFound(errtest.Pods(), "web") }

func exists() error { return apierrors.NewAlreadyExists(errtest.Pods(), "web") }

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{
		field.Invalid(field.NewPath("spec", "replicas"), -1, "must not be negative"),
		field.Required(field.NewPath("spec").Child("containers").Index(0).Child("image"), ""),
	})
}

func TestReasons(t *testing.T) {
	t.Parallel()
	refused := &url.Error{Op: "Get", URL: "https://server", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	_, noURL := url.Parse(strings.Repeat("http://%zz", 1))
	_, noFile := os.Open("/no/such/file")
	for _, test := range []struct {
		err  error
		want client.Reason
	}{
		{nil, ""},
		{notFound(), client.ReasonNotFound},
		{fmt.Errorf("get: %w", fmt.Errorf("%w: %w", client.ErrGone, notFound())), client.ReasonNotFound},
		{client.ErrGone, client.ReasonNotFound},
		{exists(), client.ReasonAlreadyExists},
		{apierrors.NewConflict(errtest.Pods(), "web", errors.New("changed")), client.ReasonConflict},
		{client.ErrReplaced, client.ReasonConflict},
		{apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec"}}, "x"), client.ReasonConflict},
		{apierrors.NewForbidden(errtest.Pods(), "web", errors.New("no")), client.ReasonForbidden},
		{apierrors.NewUnauthorized("who?"), client.ReasonForbidden},
		{invalid(), client.ReasonInvalid},
		{apierrors.NewBadRequest("no"), client.ReasonInvalid},
		{errtest.Response(http.StatusUnsupportedMediaType, 0), client.ReasonInvalid},
		{apierrors.NewTooManyRequests("slower", 1), client.ReasonThrottled},
		{errtest.Response(http.StatusServiceUnavailable, 3), client.ReasonThrottled},
		{errtest.Response(http.StatusBadGateway, 0), client.ReasonTransient},
		{apierrors.NewInternalError(errors.New("etcd")), client.ReasonTransient},
		{apierrors.NewResourceExpired("too old"), client.ReasonTransient},
		{context.DeadlineExceeded, client.ReasonTransient},
		{refused, client.ReasonUnreachable},
		{&url.Error{Op: "Put", Err: context.DeadlineExceeded}, client.ReasonUnreachable},
		{&net.DNSError{Err: "no such host"}, client.ReasonUnreachable},
		{fmt.Errorf("read the response: %w", io.ErrUnexpectedEOF), client.ReasonUnreachable},
		{errors.New("stream error: stream ID 5; INTERNAL_ERROR"), client.ReasonUnreachable},
		{&url.Error{Op: "Put", Err: context.Canceled}, client.ReasonOther},
		{&url.Error{Op: "Put", Err: fmt.Errorf("not sent: %w", kube.ErrLeadershipLost)}, client.ReasonOther},
		{context.Canceled, client.ReasonOther},
		{noURL, client.ReasonOther},
		{noFile, client.ReasonOther},
		{errors.New("no idea"), client.ReasonOther},
		{fmt.Errorf("%w: %w", kube.ErrNotServed, notFound()), client.ReasonNotServed},
		{fmt.Errorf("create: %w", fmt.Errorf("%w: %w", client.ErrNoNamespace, notFound())), client.ReasonOther},
		{fmt.Errorf("%w: %w", errors.New("what the caller makes of it"), notFound()), client.ReasonNotFound},
		{errors.Join(notFound(), errors.New("another failure")), client.ReasonOther},
		{errors.Join(exists(), nil, notFound(), invalid()), client.ReasonInvalid},
		{utilerrors.NewAggregate([]error{errtest.Response(503, 0), notFound()}), client.ReasonNotFound},
	} {
		if got := client.ReasonOf(test.err); got != test.want {
			t.Errorf("the reason of %v is %q, want %q", test.err, got, test.want)
		}
	}
}

func TestIgnoreNotFoundAndAlreadyExists(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("delete: %w", fmt.Errorf("%w: %w", client.ErrGone, notFound()))
	other := errors.New("another failure")
	for _, test := range []struct {
		err                     error
		withoutGone, withoutOld bool // the result is nil
	}{
		{nil, true, true},
		{gone, true, false},
		{exists(), false, true},
		{errors.Join(gone, notFound()), true, false},
		{errors.Join(gone, other), false, false},
		{errors.Join(gone, exists()), false, false},
		{fmt.Errorf("%w: %w", client.ErrNoNamespace, notFound()), false, false},
		{fmt.Errorf("%w: %w", kube.ErrNotServed, notFound()), false, false},
		{other, false, false},
	} {
		for name, got := range map[string]struct {
			left    error
			without bool
		}{
			"not found":      {client.IgnoreNotFound(test.err), test.withoutGone},
			"already exists": {client.IgnoreAlreadyExists(test.err), test.withoutOld},
		} {
			if got.without && got.left != nil || !got.without && !errors.Is(got.left, test.err) {
				t.Errorf("%v: of %v there is left %v", name, test.err, got.left)
			}
		}
	}
}

func TestStatusCausesAndRetryAfter(t *testing.T) {
	t.Parallel()
	want := []metav1.StatusCause{
		{Field: "spec.replicas", Type: metav1.CauseTypeFieldValueInvalid, Message: `Invalid value: -1: must not be negative`},
		{Field: "spec.containers[0].image", Type: metav1.CauseTypeFieldValueRequired, Message: "Required value"},
	}
	joined := errors.Join(fmt.Errorf("create: %w", invalid()), errtest.Response(http.StatusServiceUnavailable, 7), apierrors.NewTooManyRequests("slower", 2))
	if got := client.StatusCauses(joined); !slices.Equal(got, want) {
		t.Errorf("the causes are %+v, want %+v", got, want)
	}
	if got := client.StatusCauses(errors.New("none")); got != nil {
		t.Errorf("causes of nothing: %v", got)
	}
	if after, ok := usercode.RetryAfter(joined); after != 7*time.Second || !ok {
		t.Errorf("wait %s, %t, want the longest", after, ok)
	}
	if after, ok := usercode.RetryAfter(invalid()); after != 0 || ok {
		t.Errorf("wait %s, %t, where nothing was said", after, ok)
	}
}
