package retryrules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestFailuresReadsEachFailure(t *testing.T) {
	t.Parallel()
	errGone, unknown := errors.New("gone"), errors.New("unknown error")
	read := func(err error, class retry.Class) string {
		if err == errGone { //nolint:errorlint // Failures unwraps
			return "gone"
		}
		return string(class)
	}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"nil":                                    {nil, nil},
		"unknown":                                {unknown, []string{""}},
		"known to the caller":                    {fmt.Errorf("x: %w", errGone), []string{"gone"}},
		"status":                                 {fmt.Errorf("x: %w", errtest.Conflict()), []string{"conflict"}},
		"WithClass around a status":              {retry.WithClass(errtest.Conflict(), retry.Terminal), []string{"conflict"}},
		"WithClass around unknown":               {retry.WithClass(unknown, retry.Terminal), []string{""}},
		"fmt.Errorf, first error known":          {fmt.Errorf("%w: %w", errGone, errtest.Conflict()), []string{"gone"}},
		"fmt.Errorf, second error known":         {fmt.Errorf("%w: %w", unknown, errtest.Conflict()), []string{"conflict"}},
		"joined":                                 {errors.Join(errtest.Conflict(), unknown, nil, errGone), []string{"conflict", "", "gone"}},
		"nested joins":                           {fmt.Errorf("x: %w", errors.Join(errtest.Conflict(), errors.Join(unknown, errGone))), []string{"conflict", "", "gone"}},
		"join in the second error of fmt.Errorf": {fmt.Errorf("%w: %w", unknown, errors.Join(errGone, unknown)), []string{"gone", ""}},
		"joined unknown errors":                  {errors.Join(unknown, unknown), []string{"", ""}},
		"an aggregate":                           {utilerrors.NewAggregate([]error{errtest.Conflict(), errGone}), []string{"conflict", "gone"}},
		"a failed request":                       {&url.Error{Op: "Get", Err: unknown}, []string{"transient"}},
		"a cancelled request":                    {&url.Error{Op: "Get", Err: fmt.Errorf("x: %w", context.Canceled)}, []string{"error"}},
		"invalid URL":                            {&url.Error{Op: "parse", Err: unknown}, []string{""}},
		"unexpected EOF":                         {fmt.Errorf("x: %w", io.ErrUnexpectedEOF), []string{"transient"}},
		"wraps itself":                           {endless{}, []string{""}},
		"joined, wraps itself":                   {errors.Join(errGone, endless{}), []string{"gone", ""}},
		"methods that panic":                     {errors.Join(errGone, (*apierrors.StatusError)(nil)), []string{""}},
	} {
		if diff := cmp.Diff(test.want, Failures(test.err, read)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Errors beyond the limit count as unknown failures.
func TestFailuresIsBounded(t *testing.T) {
	t.Parallel()
	err := errtest.Response(http.StatusConflict, 0)
	for range 30 { // 2^30 errors
		err = errors.Join(err, err)
	}
	classes := Failures(err, func(_ error, class retry.Class) retry.Class { return class })
	unread := 0
	for _, class := range classes {
		if class == "" {
			unread++
		}
	}
	if unread == 0 || len(classes) > 3000 {
		t.Errorf("%d failures, %d of them not read", len(classes), unread)
	}
}

func TestFieldsOfStatusErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"nil":          {nil, nil},
		"not invalid":  {errtest.Conflict(), nil},
		"invalid":      {fmt.Errorf("x: %w", errtest.Invalid("spec", "status")), []string{"spec", "status"}},
		"duplicates":   {errors.Join(errtest.Invalid("a", "b"), errtest.Invalid("b", "c")), []string{"a", "b", "c"}},
		"apply":        {errtest.ApplyConflict(".spec.replicas"), []string{".spec.replicas"}},
		"wraps itself": {endless{}, nil},
	} {
		if diff := cmp.Diff(test.want, Fields(test.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
