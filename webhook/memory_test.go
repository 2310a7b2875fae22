package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// spaces is a body of spaces, which needs no memory.
type spaces struct{ left int }

func (s *spaces) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left)
	for i := range n {
		p[i] = ' '
	}
	s.left -= n
	return n, nil
}

// The memory for many large reviews at the same time is limited: 48 of them are read at once, up to 7 MiB each, and one of
// them further.
func TestLargeReviewsNeedBoundedMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	const size = maxBodyBytes + 1<<20
	reviews := testlength.Count(0, 300)
	if reviews == 0 {
		return // it takes a quarter of a minute
	}
	s := serveRobots(t, nil, robotHook())
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	before, peak := heap(), uint64(0)
	stop, measured := make(chan struct{}), make(chan struct{})
	go func() { // waited for below
		defer close(measured)
		for ticker := time.Tick(5 * time.Millisecond); ; {
			select {
			case <-ticker:
				peak = max(peak, heap())
			case <-stop:
				return
			}
		}
	}()
	var clients sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range reviews {
		clients.Go(func() { // waited for below
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+robotsCRD+"?timeout=60s", &spaces{size})
			request.Header.Set("Content-Type", "application/json")
			response := httptest.NewRecorder()
			s.ServeHTTP(response, request)
			mu.Lock()
			defer mu.Unlock()
			codes[response.Code]++
		})
	}
	clients.Wait()
	close(stop)
	<-measured
	if codes[http.StatusBadRequest]+codes[http.StatusServiceUnavailable] != reviews {
		t.Errorf("the responses are %v", codes)
	}
	grown := (peak - min(before, peak)) >> 20
	t.Logf("%d reviews of %d MiB: at most %d MiB, responses %v", reviews, size>>20, grown, codes)
	// A buffer has up to twice its content, and garbage is up to a fifth of the heap.
	if limit := uint64(maxBigReviews*2*(maxBodyBytes>>20)) * 12 / 10; grown > limit {
		t.Errorf("the heap has grown by %d MiB, want at most %d MiB", grown, limit)
	}
}
