package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestPollTimes(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, test := range map[string]struct {
		config poll.Config
		hold   time.Duration
		err    error
		lasts  time.Duration
		want   []float64 // minutes
	}{
		"by default":           {lasts: 3*time.Minute + time.Second, want: []float64{0, 1, 2, 3}},
		"slower than interval": {config: poll.Config{Interval: 30 * time.Second, Timeout: time.Hour}, hold: time.Minute, lasts: 4 * time.Minute, want: []float64{0, 1.5, 3}},
		"failing": {
			err: down, lasts: 200 * time.Minute, // 32 times a minute at most
			want: []float64{0, 1, 3, 7, 15, 31, 63, 95, 127, 159, 191},
		},
		"failing every half hour": {
			config: poll.Config{Interval: 30 * time.Minute}, err: down, lasts: 4 * time.Hour, // an hour at most
			want: []float64{0, 30, 90, 150, 210},
		},
		"failing every two hours": {
			config: poll.Config{Interval: 2 * time.Hour}, err: down, lasts: 5 * time.Hour,
			want: []float64{0, 120, 240},
		},
		"failing, capped": {
			config: poll.Config{MaxBackoff: 3 * time.Minute}, err: down, lasts: 13 * time.Minute,
			want: []float64{0, 1, 3, 6, 9, 12},
		},
		"once": {
			config: poll.Config{Interval: math.MaxInt64, Jitter: 1}, lasts: 24 * time.Hour, want: []float64{0},
		},
		"told to wait":         {err: retryLater(10*time.Minute, down), lasts: 25 * time.Minute, want: []float64{0, 10, 20}},
		"told to wait, deeper": {err: fmt.Errorf("fetch: %w", retryLater(10*time.Minute, down)), lasts: 15 * time.Minute, want: []float64{0, 10}},
		"told not to wait":     {err: retryLater(0, down), lasts: 5 * time.Minute, want: []float64{0, 1, 3}},
		"told to wait for ever": {
			err: retryLater(time.Duration(1<<63-1), down), lasts: 150 * time.Minute,
			want: []float64{0, 60, 120},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &outside{err: test.err, hold: test.hold}
				test.config.Poller = o
				_, _, stop := runPoll(t, test.config)
				time.Sleep(test.lasts)
				stop()
				if diff := cmp.Diff(test.want, o.polled()); diff != "" {
					t.Errorf("polled at minute (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// laterError is an error with method RetryAfter.
type laterError struct {
	error
	after time.Duration
}

func (e laterError) RetryAfter() time.Duration { return e.after }

func retryLater(after time.Duration, err error) error { return laterError{err, after} }

func TestPollSuccessResetsFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{err: errors.New("down")}
		_, _, stop := runPoll(t, poll.Config{Poller: o})
		time.Sleep(150 * time.Second)
		o.set()
		time.Sleep(time.Minute) // the poll at minute 3
		o.fail(errors.New("down again"))
		time.Sleep(4 * time.Minute)
		stop()
		if diff := cmp.Diff([]float64{0, 1, 3, 4, 5, 7}, o.polled()); diff != "" {
			t.Errorf("polled at minute (-want +got):\n%s", diff)
		}
	})
}

func TestPollJitterLengthensWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		_, _, stop := runPoll(t, poll.Config{Poller: o, Jitter: 0.1})
		time.Sleep(5 * time.Hour)
		stop()
		minutes := o.polled()
		var waits []float64
		for i := range minutes[1:] {
			waits = append(waits, minutes[i+1]-minutes[i])
		}
		least, most := slices.Min(waits), slices.Max(waits)
		if minutes[0] != 0 || least < 1 || most > 1.1 || most-least < 0.05 {
			t.Errorf("first at %g; then every %g to %g minutes, want 1 to 1.1", minutes[0], least, most)
		}
	})
}

// A poll that exceeds Timeout has failed: its list is not known.
func TestPollTimeoutIsFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{}
		o.set(item("x", "1", key("a")))
		s, q, stop := runPoll(t, poll.Config{Poller: o})
		defer stop()
		q.expect(t, "ns/a: listed x (low)")
		o.mu.Lock()
		o.hold = time.Hour
		o.mu.Unlock()
		time.Sleep(2 * time.Minute)
		ready(t, s, "no answer within Timeout, 30s: context deadline exceeded")
		q.expect(t)
	})
}

func TestPollWithoutTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{hold: 24 * time.Hour}
		s, _, stop := runPoll(t, poll.Config{Poller: o, Timeout: -1})
		defer stop()
		time.Sleep(25 * time.Hour)
		ready(t, s, "")
	})
}

// A Poller that ignores its context blocks the source, and Ready reports it.
func TestPollReportsBlockedPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		polls := 0
		s, q, stop := runPoll(t, poll.Config{Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			polls++
			<-answer
			return []poll.Item{item("x", "1", key("a"))}, nil
		})})
		time.Sleep(50 * time.Second)
		ready(t, s, "the first poll is under way")
		time.Sleep(70 * time.Second)
		ready(t, s, "the poll under way has taken 2m0s, though its context ended after Timeout, 30s")
		if polls != 1 {
			t.Errorf("%d polls at a time", polls)
		}
		answer <- struct{}{} // the poll returns late
		q.expect(t, "ns/a: listed x (low)")
		ready(t, s, "")
		close(answer)
		stop()
	})
}

func TestPollEndsWithContext(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*outside{
		"while it waits":    {},
		"in a poll":         {hold: 20 * time.Second},
		"while it fails":    {err: errors.New("down")},
		"in a failing poll": {hold: 20 * time.Second, err: errors.New("down")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				logs := &logBuffer{}
				s, _, stop := runPoll(t, poll.Config{Poller: o}, logs)
				time.Sleep(10 * time.Second)
				logged := logs.String()
				began := time.Now()
				stop()
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s", took)
				}
				if more := strings.TrimPrefix(logs.String(), logged); more != "" {
					t.Errorf("the end is logged as problem: %s", more)
				}
				if len(o.polled()) != 1 || s.Ready() == nil {
					t.Errorf("it goes on: %v", o.polled())
				}
			})
		})
	}
}

// A poll that ends after the source has stopped enqueues nothing: the next term polls again.
func TestPollEnqueuesNothingAfterEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, stop := runPoll(t, poll.Config{Poller: poll.List(func(ctx context.Context) ([]poll.Item, error) {
			<-ctx.Done()
			return []poll.Item{item("x", "1", key("a"))}, nil
		})})
		synctest.Wait()
		stop()
		q.expect(t)
	})
}

func TestPollLogsEachReasonOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &logBuffer{}
		o := &outside{}
		_, _, stop := runPoll(t, poll.Config{Poller: o}, logs)
		defer stop()
		expect := func(want ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(logs.String()) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
				got = append(got, line)
			}
			logs.Reset()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("logged (-want +got):\n%s", diff)
			}
		}
		for i := range 5 { // at minutes 1, 2, 4, 8 and 16
			o.fail(fmt.Errorf("refused from port %d", 40000+i))
			time.Sleep(time.Minute << max(i-1, 0))
			synctest.Wait() // the poll of this minute
		}
		expect(`WARN msg="a source cannot poll, will try again" source=outside error="refused from port 40000" again_in=1m0s`)
		o.fail(errors.New("reset"))
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		o.fail(errors.New("refused from port 1"))
		time.Sleep(32 * time.Minute)
		synctest.Wait()
		expect(`WARN msg="a source cannot poll, will try again" source=outside error=reset again_in=32m0s`)
		o.set()
		time.Sleep(32 * time.Minute)
		synctest.Wait()
		expect(`INFO msg="a source polls again" source=outside after=1h35m0s`)
		o.fail(errors.New("reset"))
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(`WARN msg="a source cannot poll, will try again" source=outside error=reset again_in=1m0s`)
	})
}

// Error texts that never repeat must fill neither the log nor memory.
func TestPollLogsBoundedReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &logBuffer{}
		reason := ""
		_, _, stop := runPoll(t, poll.Config{Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			reason += "x"
			return nil, errors.New(reason)
		})}, logs)
		time.Sleep(48 * time.Hour)
		stop()
		if got := strings.Count(logs.String(), "level=WARN"); got != 16 {
			t.Errorf("%d reasons are logged, want 16", got)
		}
	})
}

func TestPollValidateReportsEveryMistake(t *testing.T) {
	t.Parallel()
	poller := &outside{}
	for name, test := range map[string]struct {
		config poll.Config
		want   []string // empty: the config is valid
	}{
		"valid":                   {poll.Config{Name: "x", Poller: poller}, nil},
		"nothing":                 {poll.Config{}, []string{"Name is required", "Poller is required"}},
		"a nil function":          {poll.Config{Name: "x", Poller: poll.List(nil)}, []string{`poll.New "x": Poller is required`}},
		"the name of the objects": {poll.Config{Name: "self", Poller: poller}, []string{`Name is "self"`}},
		"the name of the loop":    {poll.Config{Name: "loop", Poller: poller}, []string{`Name is "loop"`}},
		"a nil Poller":            {poll.Config{Name: "x", Poller: (*outside)(nil)}, []string{"Poller is required"}},
		"a negative interval":     {poll.Config{Name: "x", Poller: poller, Interval: -1}, []string{"Interval is -1ns"}},
		"a short backoff":         {poll.Config{Name: "x", Poller: poller, MaxBackoff: time.Second}, []string{"MaxBackoff is 1s, below Interval, 1m0s"}},
		"jitter of no number":     {poll.Config{Name: "x", Poller: poller, Jitter: math.NaN()}, []string{"Jitter is NaN"}},
		"too much jitter":         {poll.Config{Name: "x", Poller: poller, Jitter: 1.5}, []string{"Jitter is 1.5"}},
		"the Poller's mistake":    {poll.Config{Name: "x", Poller: poll.HTTP(poll.HTTPConfig{})}, []string{"HTTPConfig.URL is required", "would enqueue no key"}},
		"a document for some":     {poll.Config{Name: "x", Poller: document(poll.HTTPConfig{Keys: []kube.Key{key("a")}})}, nil},
		"a document for those that it names": {poll.Config{
			Name: "x", Poller: document(poll.HTTPConfig{Split: func([]byte) ([]poll.Item, error) { return nil, nil }}),
		}, nil},
		"a document for those who ask": {poll.Config{
			Name: "x", Poller: document(poll.HTTPConfig{}), KeysOf: func(poll.Item) []kube.Key { return nil },
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errtest.Expect(t, validate(poll.New(test.config)), test.want...)
		})
	}
}

func document(c poll.HTTPConfig) poll.Poller {
	c.URL = "https://example.com/document"
	return poll.HTTP(c)
}

func TestControllerRejectsInvalidPoll(t *testing.T) {
	t.Parallel()
	_, err := controller.New(controller.Config[configMap]{
		Name: "test", Retriever: newServer(), Logger: slog.New(slog.DiscardHandler),
		Handler: func(context.Context, configMap) error { return nil },
		Sources: []controller.Source{poll.New(poll.Config{Name: "x"})},
	})
	if err == nil || !strings.Contains(err.Error(), `poll.New "x": Poller is required`) {
		t.Errorf("New: %v", err)
	}
}
