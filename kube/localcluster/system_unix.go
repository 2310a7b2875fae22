//go:build unix

package localcluster

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// supported says why localcluster cannot work here, or nil.
func supported() error { return nil }

// ownProcessGroup keeps Ctrl-C in the terminal away from cmd: this process gets
// it, ends its own work first and then calls Stop, or dies, which ends cmd too.
func ownProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// tryLock locks the file, or reports false if another process has it. The lock
// ends with the file's closing or with the process.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
