package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestInformerFailureReasons(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	listing := func(err error) error { return fmt.Errorf("list Pod: %w", err) }
	gateway := apierrors.NewGenericServerResponse(502, "get", pods, "", "bad gateway", 0, true)
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1/api", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}

	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"no error":             {nil, nil},
		"missing permission":   {listing(apierrors.NewForbidden(pods, "", errors.New("no"))), []string{"Forbidden"}},
		"rejected credentials": {listing(apierrors.NewUnauthorized("no")), []string{"Unauthorized"}},
		"kind not served":      {fmt.Errorf("kind Memo: %w: install it", kube.ErrNotServed), []string{"NotServed"}},
		"kind removed":         {listing(apierrors.NewNotFound(pods, "")), []string{"NotServed"}},
		"connection refused":   {listing(refused), []string{"Unreachable"}},
		"unexpected EOF":       {listing(io.ErrUnexpectedEOF), []string{"Unreachable"}},
		"EOF":                  {listing(io.EOF), []string{"Unreachable"}},
		"timeout":              {listing(context.DeadlineExceeded), []string{"Unreachable"}},
		"bad gateway":          {listing(gateway), []string{"Unreachable"}},
		"shutting down":        {listing(apierrors.NewServiceUnavailable("later")), []string{"Unreachable"}},
		"too many requests":    {listing(apierrors.NewTooManyRequests("later", 1)), []string{"Unreachable"}},
		"silent watch":         {fmt.Errorf("watch Pod: %w", cache.ErrSilentWatch), []string{"Silent"}},
		"server error":         {listing(apierrors.NewInternalError(errors.New("etcd"))), []string{"Other"}},
		"unknown error":        {listing(errors.New("what")), []string{"Other"}},
		"two parts, two reasons": {
			errors.Join(listing(refused), listing(apierrors.NewForbidden(pods, "", errors.New("no")))),
			[]string{"Forbidden", "Unreachable"},
		},
		"two parts, one reason": {errors.Join(listing(refused), listing(refused)), []string{"Unreachable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, registry := newRecorder(t)
			defer recorder.ObserveInformer("Pod", func() informer.Health { return informer.Health{Err: tc.err} })()
			var got []string
			for series, value := range gather(t, registry) {
				if rest, ok := strings.CutPrefix(series, "evenkeel_informer_failing{informer=Pod,reason="); ok && value == 1 {
					got = append(got, strings.TrimSuffix(rest, "}"))
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("reasons of %v (-want +got):\n%s", tc.err, diff)
			}
		})
	}
}
