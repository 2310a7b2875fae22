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
	// ObserveHook is called for each hook of a new server, with its path. begin is called when an HTTP request for it
	// begins, and end at its end, with the HTTP status and whether a function of the hook panicked. Both must not be
	// nil.
	ObserveHook(path string, isConversion bool) (begin func() (end func(status int, panicked bool)))
	// ObserveCertificate is called when the server starts. Until stop is called at the end of the server, expiry
	// returns the end of its current certificate, or the zero time without one, and reads how often Config.CertFile and
	// KeyFile were read since New, and how often they had no valid certificate.
	ObserveCertificate(server string, expiry func() time.Time, reads func() (all, failed uint64)) (stop func())
}

const (
	resultSuccess  = "success"
	resultRejected = "rejected"
	resultPanic    = "panic"
)

// observeHook returns the function that is called when a request for a hook begins.
func (s *Server) observeHook(hook Hook) (begin func() (end func(status int, panicked bool))) {
	if usercode.IsNil(s.metrics) {
		return func() func(int, bool) { return func(int, bool) {} }
	}
	_, isConversion := hook.protocol.(conversion)
	return s.metrics.ObserveHook("/"+hook.name, isConversion)
}

// observe adds the certificate of a running server to the metrics until stop is called.
func (s *Server) observe() (stop func()) {
	if usercode.IsNil(s.metrics) {
		return func() {}
	}
	return s.metrics.ObserveCertificate(s.Name(), s.expiry, s.http.CertificateReads)
}

// resultOf returns the result of a review without a decision.
func resultOf(ctx context.Context, err error) string {
	withCode := statusError{}
	panicked := (*usercode.PanicError)(nil)
	switch {
	case errors.As(err, &withCode) && withCode.code < http.StatusInternalServerError:
		return "invalid"
	case errors.As(err, &panicked):
		return resultPanic
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
