//go:build unix

package localcluster

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that does not answer makes a start wait until the ready timeout. What
// ends a cluster must not wait for that.
func TestStuckStartIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{ReadyTimeout: 40 * time.Second})
	began := time.Now()
	stickAndStart := func() (reply chan event) {
		if err := syscall.Kill(processes(t.Context(), t, cluster)["apiserver"], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		reply = make(chan event, 1)
		if err := cluster.supervisor.send(command{Command: "start"}, reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}

	reply := stickAndStart()
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	if e := <-reply; !strings.Contains(e.Error, "a kill command came") {
		t.Errorf("the start that was waiting says %+v", e)
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	stickAndStart()
	for range 3 { // more than the pipe's reader can hand over at once
		if err := cluster.supervisor.send(command{Command: "status"}, make(chan event, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Stop(); err != nil { // closes stdin, as this process's death would
		t.Fatal(err)
	}
	if took := time.Since(began); took > stopTimeout {
		t.Errorf("it took %v", took)
	}
}
