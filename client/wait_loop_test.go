package client_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// watchOf answers a watch with one event, and ends the watch after this time.
func watchOf(t *testing.T, eventType string, obj any, lasts time.Duration) *http.Response {
	t.Helper()
	event, err := json.Marshal(map[string]any{"type": eventType, "object": obj})
	if err != nil {
		t.Error(err)
	}
	body := &lateBody{Reader: bytes.NewReader(event), lasts: lasts, closed: make(chan struct{})}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// lateBody is a body that delays its content.
type lateBody struct {
	*bytes.Reader
	lasts  time.Duration
	end    sync.Once
	closed chan struct{}
}

// Read implements io.Reader.
func (b *lateBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.lasts):
		b.lasts = 0
		return b.Reader.Read(p)
	case <-b.closed:
		return 0, io.ErrClosedPipe
	}
}

// Close implements io.Closer.
func (b *lateBody) Close() error {
	b.end.Do(func() { close(b.closed) })
	return nil
}

// TestWaitForPausesBetweenShortWatches: each watch returns the known object, and ends.
func TestWaitForPausesBetweenShortWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		requests := 0
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if requests++; requests > 1000 {
				return nil, io.ErrUnexpectedEOF // causes a pause
			}
			if req.URL.Query().Has("watch") {
				return watchOf(t, "MODIFIED", map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "web"}}, 0), nil
			}
			return do(), nil
		})
		_, err := s.wait(t.Context(), client.Timeout(time.Minute))
		if err == nil || requests > 50 {
			t.Errorf("%d requests in a minute: %v", requests, err)
		}
	})
}

// TestWaitForContinuesWithoutPauseAfterLongWatch: a long watch resets the pause, even if it ends with an error, because
// pauses grow only with consecutive failures.
func TestWaitForContinuesWithoutPauseAfterLongWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWaitServer(t)
		s.put(1)
		lists, last, longest := 0, time.Now(), time.Duration(0)
		s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.URL.Query().Has("watch") {
				expired := apierrors.NewResourceExpired("too old").ErrStatus
				expired.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				return watchOf(t, "ERROR", expired, time.Minute), nil
			}
			longest, last = max(longest, time.Since(last)), time.Now()
			lists++
			return do(), nil
		})
		_, err := s.wait(t.Context(), client.Timeout(time.Hour))
		if lists != 60 || err == nil || !strings.Contains(err.Error(), "1 of 3 replicas are available") {
			t.Errorf("%d lists in an hour: %v", lists, err)
		}
		if longest > time.Minute+200*time.Millisecond {
			t.Errorf("the longest time between two lists is %s: the pause after a watch of a minute has grown", longest)
		}
	})
}
