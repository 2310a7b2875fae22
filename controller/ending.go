package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

const (
	// returnTime is the time for which Run waits after the drain time for functions that ignore the end of their
	// contexts. With the default drain time it ends before a manager's shutdown and before the kubelet kills the
	// process.
	returnTime = 3 * time.Second
	// stepTime is the time that each step of the end has, even if the steps before it took the whole time.
	stepTime = time.Second
	// namedKeys is the maximum number of keys that the error of Run names.
	namedKeys = 10
)

// ending bounds the end of a term, so that functions of the user that ignore their contexts do not keep Run from
// returning. It belongs to the goroutine of run.
type ending struct {
	// unbounded is true if the elector would release the lease when Run returns, while a handler may write. Package
	// leader recognizes leadership.ErrStillRunning, keeps the lease, and refuses the writes of the term.
	unbounded bool
	deadline  time.Time // set when the drain begins
	remaining []string  // what had not ended in time
}

// ended returns a channel that is closed when f has returned.
func ended(f func()) <-chan struct{} {
	returned := make(chan struct{})
	go func() { // waited for by await, or in the error of Run
		defer close(returned)
		f()
	}()
	return returned
}

// await waits until ended is closed, and returns true. At the end of the time it records what remains.
func (e *ending) await(ended <-chan struct{}, remaining func() string) bool {
	if e.unbounded {
		<-ended
		return true
	}
	timeout := time.NewTimer(max(time.Until(e.deadline), stepTime))
	defer timeout.Stop()
	select {
	case <-ended:
		return true
	case <-timeout.C:
		e.remaining = append(e.remaining, remaining())
		return false
	}
}

// wait calls f, and waits as await does.
func (e *ending) wait(f func(), what string) { e.await(ended(f), func() string { return what }) }

// leave calls the function that leaves an informer, and waits as await does.
func (e *ending) leave(inf informer.Any, leave func()) {
	e.await(ended(leave), func() string { return "informer " + inf.Name() })
}

// err returns an error if something remains.
func (e *ending) err(controller string) error {
	if len(e.remaining) == 0 {
		return nil
	}
	return fmt.Errorf("controller %q: %w: %s: functions must return when their contexts end; end this process",
		controller, leadership.ErrStillRunning, strings.Join(e.remaining, "; "))
}

// remaining returns what the workers do.
func (p *pool) remaining() string {
	keys := p.handled()
	if len(keys) == 0 {
		return "Queue.Limiter"
	}
	more := ""
	if n := len(keys) - namedKeys; n > 0 {
		keys, more = keys[:namedKeys], fmt.Sprintf(", and %d more", n)
	}
	return "handlers of " + strings.Join(keys, ", ") + more
}
