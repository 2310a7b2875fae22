package informer_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
)

func TestInformerRespectsRetryAfter(t *testing.T) {
	for name, test := range map[string]struct {
		retryAfter int // seconds
		atMost     int32
		within     time.Duration
	}{
		"minute": {60, 11, 95 * time.Second},
		"years":  {math.MaxInt32, 2, 16 * time.Minute},
	} {
		for _, watchList := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := &streaming{Server: newServer(watchList)}
					server.Put(object("a", "1"))
					fail(server.Server, errtest.Response(429, test.retryAfter))
					f := start(t, server.Server, server)
					time.Sleep(10 * time.Minute)
					if n := server.requests.Load(); n > test.atMost {
						t.Errorf("%d requests in 10 minutes, want at most %d", n, test.atMost)
					}
					fail(server.Server, nil)
					time.Sleep(test.within)
					if err := f.informer.Ready(); err != nil {
						t.Errorf("afterwards: %v", err)
					}
				})
			})
		}
	}
}

func TestStreamedListsThatBreakBecomePages(t *testing.T) {
	for _, after := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			server := &streaming{Server: holding("a", "b"), after: after}
			f := start(t, server.Server, server)
			time.Sleep(time.Minute)
			if n := server.streams.Load(); n != 3 || f.informer.Ready() != nil || f.informer.Len() != 2 {
				t.Errorf("streams that end after %s: %d of them, %d objects, Ready %v", after, n, f.informer.Len(), f.informer.Ready())
			}
		})
	}
}
