package simulation

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// stallLimit is the real time without a request and without a change of the virtual time after which a watchdog
// reports.
const stallLimit = 30 * time.Second

// watchdog reports from outside of a bubble that its virtual time has stopped: then the test hangs until the timeout of
// go test. Time stops if a goroutine waits for a mutex, for I/O or for something outside of the bubble, or never waits.
// It hardly advances if a goroutine waits for nanoseconds and makes no requests, which are limited. The bubble itself
// detects goroutines that all wait for each other.
//
// A watchdog has no timer in the bubble: that would prevent this detection.
type watchdog struct {
	bubble atomic.Pointer[string] // as in stacks; nil until enter
	runs   func() string          // describes the latest runs; set before bubble
	signs  atomic.Int64           // changes while time passes
	stop   chan struct{}
	ended  chan struct{}
}

// newWatchdog starts a watchdog, which calls report at most once for each stall. The caller must not be in the bubble,
// and must call end.
func newWatchdog(limit time.Duration, report func(text string)) *watchdog {
	ticker := time.NewTicker(limit / 4)
	return startWatchdog(ticker.C, ticker.Stop, limit, report)
}

// startWatchdog is newWatchdog with the times at which it looks. The watchdog calls stop at its end.
func startWatchdog(ticks <-chan time.Time, stop func(), limit time.Duration, report func(text string)) *watchdog {
	w := &watchdog{stop: make(chan struct{}), ended: make(chan struct{})}
	go func() { // end waits for it
		defer close(w.ended)
		defer stop()
		w.watch(ticks, limit, report)
	}()
	return w
}

// end ends a watchdog, and waits for it.
func (w *watchdog) end() {
	close(w.stop)
	<-w.ended
}

// enter makes the caller's bubble the watched one. runs is called from outside of the bubble, and describes the latest
// runs of its controllers. A nil watchdog watches nothing.
func (w *watchdog) enter(runs func() string) {
	if w == nil {
		return
	}
	buffer := make([]byte, 1<<10)
	bubble := bubbleOf(buffer[:runtime.Stack(buffer, false)])
	w.observe()
	w.runs = runs
	w.bubble.Store(&bubble)
}

// observe records the virtual time.
func (w *watchdog) observe() {
	if w != nil {
		w.signs.Store(time.Now().UnixNano())
	}
}

func (w *watchdog) watch(ticks <-chan time.Time, limit time.Duration, report func(text string)) {
	var last int64
	var since time.Time // of the first tick with last
	reported := false
	for {
		var tick time.Time
		select {
		case <-w.stop:
			return
		case tick = <-ticks:
		}
		now, bubble := w.signs.Load(), w.bubble.Load()
		switch {
		case now != last || bubble == nil:
			last, since, reported = now, tick, false
		case tick.Sub(since) >= limit && !reported:
			reported = true
			report(fmt.Sprintf("simulation: no request for %v, and the virtual time stands at %s. A goroutine of the "+
				"test waits for a mutex, for I/O "+
				"or for a goroutine outside of the bubble, or it never waits, or only for nanoseconds (a handler "+
				"that is requeued after 1 ns).\n%s"+
				"Goroutines, those that stop the time first:\n\n%s",
				limit, time.Unix(0, now).UTC().Format(time.RFC3339), w.latestRuns(), stacksOf(*bubble)))
		}
	}
}

// latestRuns returns the result of runs, or "" if it needs a mutex that another goroutine holds.
func (w *watchdog) latestRuns() string {
	result := make(chan string, 1)
	go func() { result <- w.runs() }() // not waited for: it waits for a mutex as long as the test does
	select {
	case text := <-result:
		return text
	case <-time.After(time.Second):
		return ""
	}
}

// printStall is the report of Test: the output of a test that hangs would be lost.
func printStall(text string) { fmt.Fprintln(os.Stderr, text) }

// stacks returns the stacks of the goroutines in the caller's bubble, or of all goroutines.
func stacks() string {
	buffer := make([]byte, 1<<10)
	return stacksOf(bubbleOf(buffer[:runtime.Stack(buffer, false)]))
}

// stacksOf returns the stacks of the goroutines in a bubble ("": of all goroutines). Those that are not durably blocked
// come first: virtual time does not advance while they exist.
func stacksOf(bubble string) string {
	buffer := make([]byte, 1<<22)
	var culprits, bystanders strings.Builder
	for stack := range bytes.SplitSeq(buffer[:runtime.Stack(buffer, true)], []byte("\n\n")) {
		if bubble != "" && bubbleOf(stack) != bubble {
			continue
		}
		b := &culprits
		if line, _, _ := bytes.Cut(stack, []byte("\n")); bytes.Contains(line, []byte("(durable)")) {
			b = &bystanders
		}
		b.Write(stack)
		b.WriteString("\n\n")
	}
	return culprits.String() + bystanders.String()
}

// bubbleOf returns the identity of the bubble in the first line of a stack, or "".
func bubbleOf(stack []byte) string {
	line, _, _ := bytes.Cut(stack, []byte("\n"))
	_, bubble, _ := bytes.Cut(line, []byte("synctest bubble "))
	return string(bytes.TrimRight(bubble, "]:"))
}
