package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// endWithGoCommand makes the kernel end this process, by SIGTERM, with the go
// command that runs it: "go run" and "go tool" pass no signal on, so whoever ends
// them would leave the cluster behind. Of other parents, such as a shell that is
// closed while nohup runs this, it must be independent.
//
// The setting is the calling thread's, and that of the program which the thread
// becomes, so this goroutine has to stay on it.
func endWithGoCommand() error {
	parent := os.Getppid()
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if strings.TrimSpace(string(name)) != "go" {
		return nil // one that cannot be read is in another container, and not a go command either
	}
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0); errno != 0 {
		return fmt.Errorf("asking the kernel to end this process with the go command: %w", errno)
	}
	if os.Getppid() != parent {
		return errors.New("the go command that runs this has ended")
	}
	return nil
}
