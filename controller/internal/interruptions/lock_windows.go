package interruptions

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock locks a file until it is closed, or fails at once if it is locked. It locks one byte after the content, because
// other handles cannot read locked bytes.
func lock(file *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
}

// unlock does nothing: the end of the handle unlocks the file.
func unlock(*os.File) error { return nil }
