package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// maxDecodedBytes is the limit of the memory of a review's objects, and of an object of a conversion, as estimated
	// before they are decoded.
	maxDecodedBytes = 128 << 20
	// decodeUnit is the part of the budget that a review takes for each time that its objects need as much. Reviews
	// with smaller objects take none. decodeUnits is the budget of all reviews at the same time.
	decodeUnit  = 4 << 20
	decodeUnits = 2 * maxDecodedBytes / decodeUnit
	// minMeasured is the size of a review that is measured: the objects of smaller ones need less than decodeUnit.
	minMeasured = 8 << 10
	// maxRecords is the number of records of a hook's failures in a recordInterval: clients cause them.
	maxRecords     = 10
	recordInterval = time.Minute
	// maxAttr is the length of an attribute that clients send.
	maxAttr = 256
)

// admissionShape is an AdmissionReview with objects of the type T.
type admissionShape[T kube.Object] struct {
	Request *struct {
		admissionv1.AdmissionRequest
		Object    T `json:"object"`
		OldObject T `json:"oldObject"`
	} `json:"request"`
}

// reserveReview waits until a review with the shape may be decoded, and returns a function that must be called
// afterwards. A decoder reports invalid JSON.
func (s *Server) reserveReview(
	ctx context.Context, body []byte, shape reflect.Type, places *places,
) (release func(), err error) {
	if shape == nil || len(body) < minMeasured {
		return func() {}, nil
	}
	size, err := s.shapes.Measure(body, shape, maxDecodedBytes, nil)
	if tooLarge := (wire.TooLargeError{}); errors.As(err, &tooLarge) {
		return func() {}, statusError{err, http.StatusRequestEntityTooLarge}
	}
	return s.reserve(ctx, size, places)
}

// reserve takes a part of the budget for objects of the size. A review that needs one counts as big, so that those that
// wait never have all slots.
func (s *Server) reserve(ctx context.Context, size int64, slots *places) (release func(), err error) {
	turn, memory := &places{}, &places{}
	if size < decodeUnit {
		return memory.release, nil
	}
	if !slices.Contains(slots.taken, s.big) {
		slots.release() // one that waits for s.big must have no slot
		for _, kind := range []chan struct{}{s.big, s.slots} {
			if err := slots.take(ctx, kind); err != nil {
				return memory.release, err
			}
		}
	}
	// One review at a time takes its part, so that two of them never wait for each other.
	defer turn.release()
	err = turn.take(ctx, s.turn)
	for range size / decodeUnit {
		if err == nil {
			err = memory.take(ctx, s.memory)
		}
	}
	if err != nil {
		memory.release()
	}
	return memory.release, err
}

// records limits the records of a hook's failures.
type records struct {
	received atomic.Bool // a review of the hook has arrived

	mu      sync.Mutex
	since   time.Time // guarded by mu; the begin of the interval
	written int       // guarded by mu; in the interval
	omitted int       // guarded by mu; since the last record
}

// log logs a failure of a hook, with the number of those that were not logged before, unless there were too many. The
// name "" is for reviews that do not reach a hook.
func (s *Server) log(ctx context.Context, level slog.Level, hook, text string, attrs ...any) {
	r := s.records[hook]
	r.mu.Lock()
	if now := time.Now(); now.Sub(r.since) >= recordInterval {
		r.since, r.written = now, 0
	}
	omitted, isWritten := r.omitted, r.written < maxRecords
	if r.omitted++; isWritten {
		r.written, r.omitted = r.written+1, 0
	}
	r.mu.Unlock()
	if isWritten {
		//nolint:sloglint // the text is a constant of the caller
		s.logger.Log(ctx, level, text, append(attrs, "omitted", omitted)...)
	}
}

// short returns a text of a client for a log record.
func short[T ~string](text T) string { return usercode.ShortenTo(string(text), maxAttr) }
