package webhook

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Recorder receives the measurements of a Server. It must be safe for concurrent use.
type Recorder interface {
	// WebhookReviewed is called after each review of the hook with the name, with its duration. result is
	//   - success: the request is admitted, the objects are converted, the token is authenticated, the access is not
	//     denied
	//   - rejected: a decision against the request, the token or the access
	//   - failed, panic or timeout: no decision
	//   - invalid: the HTTP request was not a review, or its client has no valid certificate (Config.ClientCAFile)
	WebhookReviewed(name, result string, duration time.Duration)
	// ObserveCertificate is called when the server starts. expiry returns the end of its current certificate, or the
	// zero time without one, until stop is called at the end of the server.
	ObserveCertificate(server string, expiry func() time.Time) (stop func())
}

const (
	resultSuccess  = "success"
	resultRejected = "rejected"
)

// resultOf returns the result of a review without a decision.
func resultOf(ctx context.Context, err error) string {
	withCode := statusError{}
	panicked := (*usercode.PanicError)(nil)
	switch {
	case errors.As(err, &withCode) && withCode.code < http.StatusInternalServerError:
		return "invalid"
	case errors.As(err, &panicked):
		return "panic"
	case ctx.Err() != nil:
		return "timeout"
	}
	return "failed"
}

// record records a review.
func (s *Server) record(name, result string, began time.Time) {
	if !usercode.IsNil(s.metrics) {
		s.metrics.WebhookReviewed(name, result, time.Since(began))
	}
}

// silenceInterval is the time after which a server names the hooks without a review. The objects of some are rarely
// written, so it is no warning.
const silenceInterval = 10 * time.Minute

// reportSilence logs once which hooks have received no review since the start of the server.
func (s *Server) reportSilence(ctx context.Context) {
	timer := time.NewTimer(silenceInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	var silent []string
	for _, hook := range s.hooks {
		if !s.records[hook.name].received.Load() {
			silent = append(silent, hook.name)
		}
	}
	if len(silent) > 0 {
		s.logger.InfoContext(ctx, "no review has arrived", "hooks", silent, "after", silenceInterval, "hint",
			"if their objects were written, check that a webhook configuration names the address of this server")
	}
}
