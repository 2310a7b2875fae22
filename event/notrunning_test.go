package event_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// Without Run, dropped events are logged once a minute. Run then logs only the events that are dropped later.
func TestWarningWhileNotRunning(t *testing.T) {
	t.Parallel()
	const idle, dropped = "event recorder is not running", "events dropped"
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, logged := server.recorder(t, event.Config{})
		flood := func(round int) {
			for i := range 2 * 1000 {
				recorder.Event(pod(fmt.Sprint("web-", round, "-", i)), "Normal", "Done", "Do", "")
			}
		}
		recorder.Event(pod("first"), "Normal", "Done", "Do", "")
		if n := logged.with(idle); n != 0 {
			t.Errorf("an event that waits for a moment is logged %d times", n)
		}
		flood(0)
		if n := logged.with(idle); n != 1 {
			t.Errorf("events dropped while nobody runs the recorder are logged %d times, want once", n)
		}
		flood(1)
		if n := logged.with(idle); n != 1 {
			t.Errorf("logged %d times within a minute, want once", n)
		}
		time.Sleep(time.Minute)
		flood(2)
		if n := logged.with(idle); n != 2 {
			t.Errorf("logged %d times a minute later, want twice", n)
		}
		time.Sleep(time.Minute)
		recorder.Event(pod("last"), "Normal", "Done", "Do", "") // this call logs all dropped events
		testrun.Start(t, recorder.Run)
		time.Sleep(10 * time.Minute)
		if n := logged.with(dropped); n != 0 {
			t.Errorf("Run logged %d times what was logged before", n)
		}
	})
}

// Without Run, events that wait for a minute are logged although none is dropped.
func TestWarningWhenEventsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, logged := newAPIServer().recorder(t, event.Config{})
		for i := range 10 {
			recorder.Event(pod(fmt.Sprint("web-", i)), "Normal", "Done", "Do", "")
			time.Sleep(10 * time.Second)
		}
		if n := logged.with("event recorder is not running"); n != 1 {
			t.Errorf("events that wait for a minute are logged %d times, want once", n)
		}
	})
}
