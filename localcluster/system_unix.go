//go:build unix

package localcluster

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// supported returns an error if localcluster does not run on this system.
func supported() error { return nil }

// ownProcessGroup keeps Ctrl-C in a terminal from reaching cmd: only this process receives it. It then calls Stop, or
// exits, which ends cmd too.
func ownProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// tryLock locks the file, or returns false if another process holds the lock. The lock ends when the file is closed or
// the process ends.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
