//go:build unix && !aix

package interruptions

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file until unlock, or fails at once if it is locked.
func lock(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor is an int
}

// unlock unlocks a file before it is closed. A child process that was forked at the same time has the file until it
// calls exec, and would keep it locked.
func unlock(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_UN) //nolint:gosec // a file descriptor is an int
}
