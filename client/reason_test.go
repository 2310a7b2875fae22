package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

func notFound() error { return apierrors.NewNotFound(errtest.Pods(), "web") }

func exists() error { return apierrors.NewAlreadyExists(errtest.Pods(), "web") }

func TestIgnoreNotFound(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("delete: %w", fmt.Errorf("%w: %w", client.ErrGone, notFound()))
	other := errors.New("another failure")
	for _, test := range []struct {
		err     error
		ignored bool
	}{
		{nil, true},
		{gone, true},
		{client.ErrGone, true},
		{notFound(), true},
		{fmt.Errorf("%w: %w", errors.New("what the caller makes of it"), notFound()), true},
		{errors.Join(gone, notFound()), true},
		{exists(), false},
		{errors.Join(gone, other), false},
		{errors.Join(gone, exists()), false},
		{errors.Join(exists(), nil, notFound()), false},
		{utilerrors.NewAggregate([]error{errtest.Response(503, 0), notFound()}), false},
		{fmt.Errorf("%w: %w", client.ErrNoNamespace, notFound()), false},
		{fmt.Errorf("%w: %w", kube.ErrNotServed, notFound()), false},
		{fmt.Errorf("%w: %w", client.ErrChanged, apierrors.NewConflict(errtest.Pods(), "web", errors.New("changed"))), false},
		{&url.Error{Op: "Get", Err: io.ErrUnexpectedEOF}, false},
		{context.DeadlineExceeded, false},
		{other, false},
	} {
		if got := client.IgnoreNotFound(test.err); (got == nil) != test.ignored {
			t.Errorf("%v: %v is left", test.err, got)
		}
	}
}

func TestLongestRetryAfterOfJoinedErrorsCounts(t *testing.T) {
	t.Parallel()
	joined := errors.Join(fmt.Errorf("create: %w", errtest.Invalid("spec")), errtest.Response(http.StatusServiceUnavailable, 7), apierrors.NewTooManyRequests("slower", 2))
	if after, ok := usercode.RetryAfter(joined); after != 7*time.Second || !ok {
		t.Errorf("wait %s, %t, want the longest", after, ok)
	}
	if after, ok := usercode.RetryAfter(errtest.Invalid("spec")); after != 0 || ok {
		t.Errorf("wait %s, %t, where nothing was said", after, ok)
	}
}
