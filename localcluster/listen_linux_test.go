package localcluster

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClusterListensOnLoopbackOnly reads the kernel's tables for the listening sockets of a cluster's processes.
// Addresses in them are hexadecimal, with reversed bytes.
func TestClusterListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{Nodes: 1})
	const loopback, listening = "0100007F:", "0A"
	found := 0
	for name, pid := range processes(t.Context(), t, cluster) {
		sockets := socketsOf(t, pid)
		for _, table := range []string{"tcp", "tcp6"} {
			file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(file)
			for lines.Scan() {
				fields := strings.Fields(lines.Text()) // number, local, remote, state, ..., inode (tenth)
				if len(fields) < 10 || fields[3] != listening || !sockets[fields[9]] {
					continue
				}
				found++
				if !strings.HasPrefix(fields[1], loopback) {
					t.Errorf("%s listens on %s of %s", name, fields[1], table)
				}
			}
			_ = file.Close()
		}
	}
	if found != 1 {
		t.Errorf("found %d listeners, want only the API server's", found)
	}
}

// socketsOf returns the inodes of a process's open sockets.
func socketsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("reading the open files of process %d: %v", pid, err)
	}
	pattern := regexp.MustCompile(`^socket:\[(\d+)\]$`)
	inodes := map[string]bool{}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed concurrently
		}
		if found := pattern.FindStringSubmatch(target); found != nil {
			inodes[found[1]] = true
		}
	}
	return inodes
}
