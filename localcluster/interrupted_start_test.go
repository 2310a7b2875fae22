//go:build unix

package localcluster

import (
	"strings"
	"syscall"
	"testing"
)

// If the server does not respond, a start waits until the ready timeout. Kill and Stop must not wait for it.
func TestKillAndStopInterruptStart(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{ReadyTimeout: 2 * stopTimeout})
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
	if e := <-reply; !strings.Contains(e.Error, "cancelled by a kill command") {
		t.Errorf("the reply to the waiting start is %+v", e)
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	stickAndStart()
	for range 3 { // more than the reader of the pipe accepts at once
		if err := cluster.supervisor.send(command{Command: "status"}, make(chan event, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// Stop closes stdin, like the end of this process. It fails if the supervisor waits for the start.
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
}
