package resync

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// run runs resyncs of n objects in a synctest bubble until the test ends. The returned function returns the times of
// the resyncs since the last call, by key.
func run(t *testing.T, interval time.Duration, n int, successes *Successes) (take func() map[kube.Key][]time.Time) {
	t.Helper()
	var mu sync.Mutex
	times := map[kube.Key][]time.Time{} // guarded by mu
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // waited for by the cleanup
		defer close(ended)
		Run(ctx, Config{Interval: interval, Successes: successes, Resync: func(share, shares int, due func(kube.Key) bool) {
			mu.Lock()
			defer mu.Unlock()
			for i := share; i < n; i += shares {
				if key := keyOf(i); due(key) {
					times[key] = append(times[key], time.Now())
					successes.Record(key, time.Now(), true)
				}
			}
		}})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() map[kube.Key][]time.Time {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		taken := times
		times = map[kube.Key][]time.Time{}
		return taken
	}
}

func keyOf(i int) kube.Key { return kube.Key{Name: fmt.Sprint("o", i)} }

// TestRunSpreadsFewObjects checks that also fewer objects than shares are spread over the interval, and that each is
// resynced at the same offset in every interval.
func TestRunSpreadsFewObjects(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		for _, objects := range []int{1, 2, 3, 5, 8, 20} {
			t.Run(fmt.Sprintf("%s, %d objects", interval, objects), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					take := run(t, interval, objects, NewSuccesses())
					time.Sleep(3 * interval)
					offsets := []time.Duration{interval / 10, interval} // the range of all offsets
					for key, times := range take() {
						first := times[0].Sub(began)
						offsets = append(offsets, first)
						if first < interval/10 {
							t.Errorf("%s is resynced %s after the start", key, first)
						}
						if len(times) != 3 || times[1].Sub(began) != first+interval || times[2].Sub(began) != first+2*interval {
							t.Errorf("%s is resynced at %v, want once per interval at the same offset", key, times)
						}
					}
					if len(offsets) != objects+2 {
						t.Fatalf("%d objects are resynced, want %d", len(offsets)-2, objects)
					}
					slices.Sort(offsets)
					for i := range offsets[1:] {
						if gap := offsets[i+1] - offsets[i]; gap > interval*9/10*5/2/time.Duration(objects+1) {
							t.Errorf("no resync from %s to %s", offsets[i], offsets[i+1])
						}
					}
				})
			})
		}
	}
}

// TestRunCountsFromRecordedSuccess checks that an object with a recorded success is resynced one interval after it, at
// most a quarter of an interval later. The other objects stay at their fixed offsets. So does an object after Forget.
func TestRunCountsFromRecordedSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, objects = time.Hour, 100
		successes := NewSuccesses()
		take := run(t, interval, objects, successes)
		began := time.Now()
		time.Sleep(interval)
		offsets := map[kube.Key]time.Duration{}
		for key, times := range take() {
			offsets[key] = times[0].Sub(began)
		}
		atOffset := func(key kube.Key, times []time.Time) {
			for _, at := range times {
				if at.Sub(began)%interval != offsets[key]%interval {
					t.Errorf("%s is resynced at offset %s, want %s", key, at.Sub(began)%interval, offsets[key])
				}
			}
		}
		for step := range 20 {
			time.Sleep(interval * time.Duration(step) / 20)
			take()
			succeeded := time.Now()
			for i := range objects / 2 {
				successes.Record(keyOf(i), succeeded, false)
			}
			time.Sleep(interval * 5 / 4)
			resynced := take()
			for i := range objects {
				key := keyOf(i)
				times := resynced[key]
				if i >= objects/2 {
					atOffset(key, times)
				} else if len(times) != 1 || times[0].Sub(succeeded) < interval-tick {
					t.Fatalf("success at %s, resyncs at %v: want one, an interval later", succeeded, times)
				}
			}
		}
		for i := range objects / 2 {
			successes.Forget(keyOf(i))
		}
		if n := successes.Len(); n != 0 {
			t.Errorf("%d keys are recorded after Forget", n)
		}
		time.Sleep(interval)
		take()
		time.Sleep(interval)
		for key, times := range take() {
			atOffset(key, times)
		}
	})
}

func TestNegativeIntervalMeansNoResyncs(t *testing.T) {
	t.Parallel()
	Run(t.Context(), Config{Interval: -1}) // returns
}
