//go:build !unix

package localcluster

import (
	"errors"
	"os"
	"os/exec"
)

// supported returns an error if localcluster does not run on this system.
func supported() error {
	return errors.New("localcluster runs on Linux and macOS only; to use an existing cluster, set " + EnvExisting)
}

func ownProcessGroup(*exec.Cmd) {}

func tryLock(*os.File) (bool, error) { return false, supported() }
