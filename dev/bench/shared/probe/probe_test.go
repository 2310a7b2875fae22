package probe

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMarkIsReadBack(t *testing.T) {
	t.Parallel()
	mark := Mark(7, 1234)
	sent := strings.Replace(mark, strings.Repeat("0", StampWidth), "1763633421123456789", 1)
	burst, seq, at, err := ParseMark(sent)
	if burst != 7 || seq != 1234 || at != 1763633421123456789 || err != nil {
		t.Errorf("ParseMark(%q) = %d, %d, %d, %v", sent, burst, seq, at, err)
	}
	for _, bad := range []string{"", "7", "7-8", "a-1-1", "1-a-1", "1-1-a"} {
		if _, _, _, err := ParseMark(bad); err == nil {
			t.Errorf("ParseMark(%q) gave no error", bad)
		}
	}
}

func TestNumberIsInTheUID(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 1, 99_999, 1_000_000} {
		uid := "9b2d3c1a-77aa-4c3e-a111-0123" + NumberDigits(i)
		if got, err := NumberOf(uid); got != i || err != nil {
			t.Errorf("NumberOf(%s) = %d, %v, want %d", uid, got, err, i)
		}
	}
	if _, err := NumberOf("not a uid"); err == nil {
		t.Error("a UID without number gave no error")
	}
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	thousand := make([]int64, 1000)
	for i := range thousand {
		thousand[len(thousand)-1-i] = int64(i+1) * 1000
	}
	for name, test := range map[string]struct {
		values []int64
		want   []float64
	}{
		"of none":     {nil, nil},
		"of one":      {[]int64{5000}, []float64{5, 5, 5}},
		"of two":      {[]int64{2000, 1000}, []float64{1, 2, 2}},
		"of thousand": {thousand, []float64{500, 990, 999}},
	} {
		if got := percentiles(test.values, 50, 99, 99.9); !reflect.DeepEqual(got, test.want) {
			t.Errorf("percentiles %s: %v, want %v", name, got, test.want)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSyncEndsWhenEachObjectWasHandled(t *testing.T) {
	t.Parallel()
	o := newObserver(3)
	for i, number := range []int{0, 1, 1, 0, 2} { // a resync repeats
		if closed(o.synced) {
			t.Fatalf("synced after %d runs", i)
		}
		o.Handled(time.Now(), "ns", fmt.Sprint(number), NumberDigits(number), nil, 0)
	}
	if !closed(o.synced) {
		t.Error("not synced after each object was handled")
	}
}

func TestBurstEndsWithTheLastEventOfEachKey(t *testing.T) {
	t.Parallel()
	o := newObserver(2)
	b := o.expect(Command{Burst: 5, Count: 6, Keys: 2})
	handle := func(burst, seq int) {
		mark := fmt.Sprintf("%03d-%08d-%d", burst, seq, time.Now().Add(-time.Millisecond).UnixNano())
		o.Handled(time.Now(), "ns", "a", NumberDigits(0), map[string]string{EventAnnotation: mark}, 0)
	}
	handle(5, 0) // a later event of the same key follows
	handle(4, 5) // another burst
	handle(5, 4)
	handle(5, 4) // again, by a resync
	if closed(b.done) {
		t.Fatal("done before the last event of the second key")
	}
	handle(5, 5)
	if !closed(b.done) {
		t.Fatal("not done after the last event of each key")
	}
	for seq, latency := range b.latencies {
		if latency < int64(time.Millisecond) || latency > int64(time.Minute) {
			t.Errorf("latency of event %d: %d ns", seq, latency)
		}
	}
}

func TestPeakRSSIsMeasured(t *testing.T) {
	t.Parallel()
	if peak, err := peakRSS(); err != nil || peak < 1<<20 {
		t.Errorf("peak RSS %d, %v", peak, err)
	}
}
