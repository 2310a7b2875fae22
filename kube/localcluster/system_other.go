//go:build !unix

package localcluster

import (
	"errors"
	"os"
	"os/exec"
)

// supported says why localcluster cannot work here, or nil.
func supported() error {
	return errors.New("localcluster runs on Linux and macOS only; use an existing cluster by " + EnvExisting)
}

func ownProcessGroup(*exec.Cmd) {}

func tryLock(*os.File) (bool, error) { return false, supported() }
