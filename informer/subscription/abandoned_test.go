package subscription_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// The queue of a channel without a receiver has at most one entry per existing object.
// The test is not parallel, because it measures the heap.
func TestUnreadChannelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, s := newSubscribed(t)
		s.Objects()
		s.Events()
		testrun.Start(t, s.Run)
		synctest.Wait()
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		churn := func(round int) {
			for n := range 5_000 {
				name := fmt.Sprintf("job-%d-%d-with-a-name-as-long-as-those-of-pods-mostly-are", round, n)
				server.Put(object(name, "1"))
				synctest.Wait()
				server.Delete(key(name))
			}
			synctest.Wait()
			server.Compact()
		}
		churn(0)
		before := heap()
		churn(1)
		if each := (heap() - before) / 5_000; each > 50 {
			t.Errorf("%d bytes are used for each object that was created and deleted", each)
		}
	})
}
