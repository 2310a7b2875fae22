// Package machine describes the machine and the source of a measurement.
package machine

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Machine is the hardware and the system that a measurement ran on.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory"`
	System  string `json:"system"`
	LoadAvg string `json:"loadAvg"` // before the run
}

// This describes the machine of this process.
func This() Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: runtime.GOARCH, System: runtime.GOOS}
	if line := lineOf("/proc/cpuinfo", "model name"); line != "" {
		m.CPU = line
	}
	var kilobytes int64
	if _, err := fmt.Sscan(lineOf("/proc/meminfo", "MemTotal"), &kilobytes); err == nil {
		m.Memory = kilobytes << 10
	}
	var name syscall.Utsname
	if err := syscall.Uname(&name); err == nil {
		var release []byte
		for _, c := range name.Release {
			if c == 0 {
				break
			}
			release = append(release, byte(c))
		}
		version, _, _ := strings.Cut(string(release), "-")
		m.System = "Linux " + version
	}
	m.LoadAvg = LoadAvg()
	return m
}

// LoadAvg returns the load averages of 1, 5 and 15 minutes, or "".
func LoadAvg() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(load))[:3], " ")
}

// Commit returns the commit of the repository at dir, and whether files were changed since.
func Commit(ctx context.Context, dir string) string {
	const unknown = "working copy"
	head, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return unknown
	}
	version := "commit " + strings.TrimSpace(string(head))
	changes, err := exec.CommandContext(ctx, "git", "-C", dir, "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changes) > 0 {
		version += " with changes"
	}
	return version
}

// lineOf returns the text after "name:" in a file of /proc.
func lineOf(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
