package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// endWithGoCommand makes the kernel send SIGTERM to this process when the go command that runs it ends: "go run" and
// "go tool" do not pass on signals, so the cluster would be left behind. The cluster must be independent of other
// parents, such as a shell that is closed while nohup runs this.
//
// The setting belongs to the calling thread and to the program that the thread executes, so the goroutine must not
// change threads.
func endWithGoCommand() error {
	parent := os.Getppid()
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if strings.TrimSpace(string(name)) != "go" {
		return nil // an unreadable parent is in another container, so it is not a go command
	}
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM),
		0); errno != 0 {
		return fmt.Errorf("setting the parent death signal: %w", errno)
	}
	if os.Getppid() != parent {
		return errors.New("the go command that runs this has ended")
	}
	return nil
}
