package manager

import (
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
)

// cgroupFiles returns a file system with files, each "path=content".
func cgroupFiles(files ...string) fstest.MapFS {
	root := fstest.MapFS{}
	for _, file := range files {
		name, text, _ := strings.Cut(file, "=")
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return root
}

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	const v1 = "sys/fs/cgroup/memory/"
	for name, tc := range map[string]struct {
		files    []string
		want     int64
		wantFile string
	}{
		"not Linux":                      {nil, 0, ""},
		"version 2 in a container":       {[]string{"proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=1000"}, 1000, "/sys/fs/cgroup/memory.max"},
		"version 2 without a limit":      {[]string{"proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=max"}, 0, ""},
		"version 2 without files":        {[]string{"proc/self/cgroup=0::/"}, 0, ""},
		"version 2, a parent's is lower": {[]string{"proc/self/cgroup=0::/a/b", "sys/fs/cgroup/a/memory.max=10", "sys/fs/cgroup/a/b/memory.max=20"}, 10, "/sys/fs/cgroup/a/memory.max"},
		"version 2, own is lower":        {[]string{"proc/self/cgroup=0::/a/b", "sys/fs/cgroup/a/memory.max=30", "sys/fs/cgroup/a/b/memory.max=20"}, 20, "/sys/fs/cgroup/a/b/memory.max"},
		"version 2, path outside":        {[]string{"proc/self/cgroup=0::/../x", "sys/fs/cgroup/memory.max=10"}, 10, "/sys/fs/cgroup/memory.max"},
		"version 1, path of the host":    {[]string{"proc/self/cgroup=3:cpu:/\n2:memory:/kubepods/x\n0::/kubepods/x", v1 + "memory.limit_in_bytes=500"}, 500, "/" + v1 + "memory.limit_in_bytes"},
		"version 1, shared controllers":  {[]string{"proc/self/cgroup=2:cpu,memory:/", v1 + "memory.limit_in_bytes=500"}, 500, "/" + v1 + "memory.limit_in_bytes"},
		"version 1 without a limit":      {[]string{"proc/self/cgroup=2:memory:/", v1 + "memory.limit_in_bytes=9223372036854771712"}, 0, ""},
		"damaged":                        {[]string{"proc/self/cgroup=x\n0::/", "sys/fs/cgroup/memory.max=-5"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if limit, file := cgroupLimit(cgroupFiles(tc.files...)); limit != tc.want || file != tc.wantFile {
				t.Errorf("got %d from %q, want %d from %q", limit, file, tc.want, tc.wantFile)
			}
		})
	}
}

func TestSetMemoryLimit(t *testing.T) {
	root := cgroupFiles("proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=10000000000")
	for name, tc := range map[string]struct {
		variable     string
		before, want int64
	}{
		"from the cgroup":            {"", math.MaxInt64, 9_000_000_000},
		"off":                        {"off", math.MaxInt64, math.MaxInt64},
		"the program's is respected": {"", 5_000_000_000, 5_000_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tc.variable)
			original := debug.SetMemoryLimit(tc.before)
			defer debug.SetMemoryLimit(original)
			var logs testlog.Buffer
			setMemoryLimit(slog.New(slog.NewTextHandler(&logs, nil)), root)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
			if logged := strings.Contains(logs.String(), "Go memory limit set"); logged != (tc.want != tc.before) {
				t.Errorf("logs: %q", logs.String())
			}
		})
	}
}
