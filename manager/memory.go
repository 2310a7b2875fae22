package manager

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// setMemoryLimit sets the Go runtime's memory limit to nine tenths of the limit of the process's cgroup. The rest is
// for memory that the Go runtime does not count, and for the time until a garbage collection has an effect. It respects
// a limit that is already set, and GOMEMLIMIT=off.
func setMemoryLimit(logger *slog.Logger, root fs.FS) {
	if os.Getenv("GOMEMLIMIT") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if limit, file := cgroupLimit(root); file != "" {
		debug.SetMemoryLimit(limit / 10 * 9)
		logger.Info("Go memory limit set", "bytes", limit/10*9, "cgroup_limit", limit, "file", file)
	}
}

// cgroupLimit returns the lowest memory limit of the process's cgroup and its parents, and the file that contains it.
// The file is "" if there is no limit.
func cgroupLimit(root fs.FS) (limit int64, file string) {
	membership, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, "" // not Linux
	}
	for line := range strings.Lines(string(membership)) {
		// Version 2: "0::/path". Version 1: "7:cpu,memory:/path".
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		mount, name := "sys/fs/cgroup", "memory.max"
		switch {
		case len(fields) < 3:
			continue
		case strings.Contains(","+fields[1]+",", ",memory,"):
			mount, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		// A container may see the path of its host, and only its own cgroup at the mount.
		for below := path.Clean("/" + fields[2]); ; below = path.Dir(below) {
			at := path.Join(mount, below, name)
			text, err := fs.ReadFile(root, at)
			// Version 2 has "max" without a limit, version 1 the largest multiple of the page size.
			value, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && parseErr == nil && value > 0 && value < 1<<62 && (file == "" || value < limit) {
				limit, file = value, "/"+at
			}
			if below == "/" {
				break
			}
		}
	}
	return limit, file
}
