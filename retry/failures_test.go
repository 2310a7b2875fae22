package retry_test

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

	"github.com/evenkeel-go/evenkeel/retry"
)

func TestFailuresAreReadOneByOne(t *testing.T) {
	t.Parallel()
	errGone, unknown := errors.New("gone"), errors.New("no more coffee")
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
		"nothing":                       {nil, nil},
		"unknown":                       {unknown, []string{""}},
		"known to the caller":           {fmt.Errorf("x: %w", errGone), []string{"gone"}},
		"an answer":                     {fmt.Errorf("x: %w", conflict()), []string{"conflict"}},
		"what says its class":           {retry.WithClass(conflict(), retry.Terminal), []string{"conflict"}},
		"says its class, and no more":   {retry.WithClass(unknown, retry.Terminal), []string{""}},
		"the first word counts":         {fmt.Errorf("%w: %w", errGone, conflict()), []string{"gone"}},
		"the first word means nothing":  {fmt.Errorf("%w: %w", unknown, conflict()), []string{"conflict"}},
		"joined":                        {errors.Join(conflict(), unknown, nil, errGone), []string{"conflict", "", "gone"}},
		"joined below":                  {fmt.Errorf("x: %w", errors.Join(conflict(), errors.Join(unknown, errGone))), []string{"conflict", "", "gone"}},
		"joined below the second word":  {fmt.Errorf("%w: %w", unknown, errors.Join(errGone, unknown)), []string{"gone", ""}},
		"joined of nothing but unknown": {errors.Join(unknown, unknown), []string{"", ""}},
		"an aggregate":                  {utilerrors.NewAggregate([]error{conflict(), errGone}), []string{"conflict", "gone"}},
		"a failed request":              {&url.Error{Op: "Get", Err: unknown}, []string{"transient"}},
		"a cancelled request":           {&url.Error{Op: "Get", Err: fmt.Errorf("x: %w", context.Canceled)}, []string{"error"}},
		"no URL":                        {&url.Error{Op: "parse", Err: unknown}, []string{""}},
		"an answer that was cut":        {fmt.Errorf("x: %w", io.ErrUnexpectedEOF), []string{"transient"}},
		"without end":                   {endless{}, []string{""}},
		"joined without end":            {errors.Join(errGone, endless{}), []string{"gone", ""}},
		"methods that panic":            {errors.Join(errGone, (*apierrors.StatusError)(nil)), []string{""}},
	} {
		if diff := cmp.Diff(test.want, retry.Failures(test.err, read)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFailuresOfManyErrorsEnd: and what is not read is a failure all the same.
func TestFailuresOfManyErrorsEnd(t *testing.T) {
	t.Parallel()
	err := answer(http.StatusConflict, 0)
	for range 30 { // 2^30 errors
		err = errors.Join(err, err)
	}
	read := retry.Failures(err, func(_ error, class retry.Class) retry.Class { return class })
	unread := 0
	for _, class := range read {
		if class == "" {
			unread++
		}
	}
	if unread == 0 || len(read) > 3000 {
		t.Errorf("%d failures, of which %d were not read", len(read), unread)
	}
}
