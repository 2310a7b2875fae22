package crd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/crd"
)

// A wrong Retry-After, such as that of a proxy, must not stop a migration for days.
func TestMigrateLimitsRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, c, _ := newTransport(t)
		install(t, c, nil)
		refused := 0
		server.answer = func(req *http.Request) *http.Response {
			if refused++; refused > 2 {
				return nil
			}
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"2592000"}},
				Body: io.NopCloser(strings.NewReader("slow down")), Request: req,
			}
		}
		began := time.Now()
		m, err := crd.Migrate(t.Context(), c, website)
		if took := time.Since(began); err != nil || took < 20*time.Minute || took > 21*time.Minute {
			t.Errorf("after %s: %v, %v; want the limit of 10 min for each of 2 requests", took, m, err)
		}
	})
}
