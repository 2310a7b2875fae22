package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// places are the slots that a review has.
type places struct{ taken []chan struct{} }

// take waits for a slot.
func (p *places) take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		p.taken = append(p.taken, slots)
		return nil
	case <-ctx.Done():
		return statusError{errors.New("other reviews did not end in time"), http.StatusServiceUnavailable}
	}
}

func (p *places) release() {
	for _, slots := range p.taken {
		<-slots
	}
	p.taken = nil
}

// readBody reads the body of a review of the content type JSON, and waits for its slots: a small review needs one when
// it is complete, a larger one before the rest is read.
func (s *Server) readBody(
	ctx context.Context, w http.ResponseWriter, req *http.Request, limit int64, places *places,
) ([]byte, error) {
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || contentType != "application/json" {
		return nil, statusError{
			errors.New("the content type must be application/json"),
			http.StatusUnsupportedMediaType,
		}
	}
	reader := http.MaxBytesReader(w, req.Body, limit)
	// The buffer has room for the whole body of most reviews. It is limited, because a client need not send what it
	// announces.
	buffer := make([]byte, 0, min(max(req.ContentLength, 0), maxFirstBuffer)+bytes.MinRead)
	body, err := readUpTo(reader, buffer, smallBodyBytes, 0)
	if err != nil {
		return nil, err
	}
	if len(body) <= smallBodyBytes {
		return body, places.take(ctx, s.slots)
	}
	if err := places.take(ctx, s.big); err != nil {
		return nil, err
	}
	if err := places.take(ctx, s.slots); err != nil {
		return nil, err
	}
	steady := &steadyReader{Reader: reader, control: http.NewResponseController(w), began: time.Now()}
	if body, err = readUpTo(steady, body, maxBodyBytes, req.ContentLength); err != nil || len(body) <= maxBodyBytes {
		return body, err
	}
	if err := places.take(ctx, s.large); err != nil {
		return nil, err
	}
	steady.began, steady.bytes = time.Now(), 0
	return readUpTo(steady, body, limit, req.ContentLength)
}

// readUpTo reads after begin until the end, or until there is one byte more than limit. The client has announced the
// length of the whole, if it is positive: a buffer that grows would need twice the memory.
func readUpTo(r io.Reader, begin []byte, limit, announced int64) ([]byte, error) {
	body := bytes.NewBuffer(begin)
	if missing := min(announced, limit+1) - int64(len(begin)); missing > 0 {
		body.Grow(int(missing) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(r, limit+1-int64(len(begin))))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, statusError{
			fmt.Errorf("the review has more than %d bytes", tooLarge.Limit),
			http.StatusRequestEntityTooLarge,
		}
	}
	if err != nil {
		return nil, badRequest("read the review: %w", err)
	}
	return body.Bytes(), nil
}

// steadyReader returns an error if the client is slower than minRate.
type steadyReader struct {
	io.Reader
	control *http.ResponseController
	began   time.Time
	bytes   int
}

// Read implements io.Reader.
func (r *steadyReader) Read(p []byte) (int, error) {
	// An error means that the test does not use a connection.
	_ = r.control.SetReadDeadline(r.began.Add(timeFor(r.bytes)))
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// timeFor returns how long a client may need for a number of bytes.
func timeFor(n int) time.Duration { return maxStall + time.Duration(n)*time.Second/minRate }

// decodeReview decodes a review of the kind. Names of fields are case-sensitive, as in the API server.
func decodeReview(body []byte, review runtime.Object, kind schema.GroupVersionKind) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, review); err != nil {
		return badRequest("decode the review: %w", err)
	}
	return checkKind(review.GetObjectKind().GroupVersionKind(), kind)
}

func checkKind(got, want schema.GroupVersionKind) error {
	if got != want {
		return badRequest("the review is %s: want %s", got, want)
	}
	return nil
}

// fail writes an error as an HTTP response, and returns its code and the result for metrics. An error without a code is
// a failure of the program, which was logged.
func (s *Server) fail(
	ctx context.Context, w http.ResponseWriter, name string, began time.Time, err error,
) (code int, result string) {
	code, result = http.StatusInternalServerError, resultOf(ctx, err)
	s.record(name, result, began)
	if withCode := (statusError{}); errors.As(err, &withCode) {
		code = withCode.code
		s.log(ctx, slog.LevelWarn, "", "review without a decision", "webhook", name, "status", code, "error",
			usercode.Error(err))
	}
	http.Error(w, usercode.Text(err), code)
	return code, result
}

// statusError is an error with the code of its HTTP response.
type statusError struct {
	error
	code int
}

func badRequest(format string, args ...any) error {
	return statusError{fmt.Errorf(format, args...), http.StatusBadRequest}
}

// deadline returns a context that ends at nine tenths of the time that the API server waits, so that the response
// arrives in time. The API server sends the time in the parameter timeout.
func deadline(ctx context.Context, text string, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if text != "" {
		sent, err := time.ParseDuration(text)
		if err != nil || sent <= 0 {
			return ctx, func() {}, badRequest("the parameter timeout is %q: want a positive duration such as 10s",
				usercode.Shorten(text))
		}
		timeout = min(sent, time.Minute)
	}
	timeout = timeout * 9 / 10
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the webhook did not respond within %s", timeout))
	return ctx, cancel, nil
}
