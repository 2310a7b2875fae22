//go:build aix || (!unix && !windows)

package interruptions

import (
	"errors"
	"os"
)

// lock reports that files cannot be locked here.
func lock(*os.File) error { return errors.ErrUnsupported }

// unlock does nothing, because no file is locked.
func unlock(*os.File) error { return nil }
