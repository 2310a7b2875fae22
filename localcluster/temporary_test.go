package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newFolder returns the folder of a cluster that does not run.
func newFolder(t *testing.T) (*folder, *pki) {
	t.Helper()
	f, err := openFolder(options{Dir: filepath.Join(t.TempDir(), "cluster")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	f.Port = 1
	p, err := openPKI(filepath.Join(f.path, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// temporaryFolder makes the folder of a temporary cluster with the files.
func temporaryFolder(t *testing.T, temp, name string, mode os.FileMode, files ...string) string {
	t.Helper()
	dir := filepath.Join(temp, tempPrefix+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		writeFile(t, filepath.Join(dir, file), "{}")
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func hold(t *testing.T, dir string) {
	t.Helper()
	held, err := lock(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
}

func TestStaleFoldersAreRemovedAndOthersNot(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	hold(t, temporaryFolder(t, temp, "running", 0o700, settingsFile))
	temporaryFolder(t, temp, "stale", 0o700, settingsFile, lockFile)
	temporaryFolder(t, temp, "stale-without-lock", 0o700, settingsFile)
	temporaryFolder(t, temp, "starting", 0o700, lockFile)
	for _, name := range []string{"half-removed", "killed-early"} {
		dir := temporaryFolder(t, temp, name, 0o700, lockFile)
		old := time.Now().Add(-2 * makingTime)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	hold(t, temporaryFolder(t, temp, "open", 0o755, settingsFile)) // its owner would have it closed
	if err := os.Symlink(temporaryFolder(t, t.TempDir(), "elsewhere", 0o700, settingsFile), filepath.Join(temp, tempPrefix+"link")); err != nil {
		t.Fatal(err)
	}

	running, _ := temporaryClusters(temp)
	if want := []string{filepath.Join(temp, tempPrefix+"running")}; !slices.Equal(running, want) {
		t.Errorf("running are %v, want %v", running, want)
	}
	removeStale(temp)
	entries, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, strings.TrimPrefix(entry.Name(), tempPrefix))
	}
	if want := []string{"link", "open", "running", "starting"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

func TestLookingForClustersMakesNoLock(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	dir := temporaryFolder(t, temp, "removing", 0o700, settingsFile)
	temporaryClusters(temp)
	if _, err := os.Stat(filepath.Join(dir, lockFile)); !os.IsNotExist(err) {
		t.Errorf("there is a lock: %v", err)
	}
}

// ownedBy is a directory, closed to others, of another user.
type ownedBy struct {
	fs.FileInfo
	uid int
}

func (o ownedBy) Sys() any { return &syscall.Stat_t{Uid: uint32(o.uid)} }

func TestFolderOfAnotherUserIsNotOurs(t *testing.T) {
	t.Parallel()
	info, err := os.Lstat(temporaryFolder(t, t.TempDir(), "a", 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if !isPrivate(info) || !isPrivate(ownedBy{info, os.Getuid()}) {
		t.Error("our own is not ours")
	}
	if isPrivate(ownedBy{info, os.Getuid() + 1}) {
		t.Error("another user's is ours")
	}
}

func TestRemovalTakesItsOwnKubeconfigOnly(t *testing.T) {
	t.Parallel()
	for name, ours := range map[string]bool{"ours": true, "another cluster's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newFolder(t)
			path := filepath.Join(t.TempDir(), "config")
			if err := f.writeKubeconfig(p, path, user{Name: "admin"}); err != nil {
				t.Fatal(err)
			}
			removed := f
			if !ours {
				removed, _ = newFolder(t)
			}
			removeCluster(removed.path, path)
			if _, err := os.Stat(path); os.IsNotExist(err) != ours {
				t.Errorf("after the removal of the cluster: %v", err)
			}
			if _, err := os.Stat(removed.path); !os.IsNotExist(err) {
				t.Errorf("the folder is still there: %v", err)
			}
		})
	}
}

func TestKubeconfigOfOthersIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		wantErr bool
	}{
		"of a localcluster that is gone": {"contexts: [{name: localcluster, context: {cluster: localcluster}}]", false},
		"empty":                          {"", false},
		"somebody's":                     {"contexts: [{name: production, context: {cluster: production}}]", true},
		"something else":                 {"apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: b}}]", true},
		"not yaml":                       {"\tNo!", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config")
			writeFile(t, path, test.content)
			if err := mayOverwrite(t.Context(), path, nil); (err != nil) != test.wantErr {
				t.Errorf("got %v, want an error: %v", err, test.wantErr)
			}
		})
	}
}

func TestKubeconfigOfARunningClusterIsKept(t *testing.T) {
	t.Parallel()
	f, p := newFolder(t)
	path := filepath.Join(t.TempDir(), "config")
	f.Port = serveAs(t, f)
	if err := f.writeKubeconfig(p, path, user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	_, other := newFolder(t)
	if err := mayOverwrite(t.Context(), path, p.ca.certPEM); err != nil {
		t.Errorf("its own: %v", err)
	}
	err := mayOverwrite(t.Context(), path, other.ca.certPEM)
	if err == nil || !strings.Contains(err.Error(), "another localcluster, which runs at "+f.serverURL()) {
		t.Errorf("another's: %v", err)
	}
	// A stranger on the port of a cluster that is gone is not that cluster.
	if err := f.writeKubeconfig(other, path, user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	if err := mayOverwrite(t.Context(), path, p.ca.certPEM); err != nil {
		t.Errorf("one whose port is another server's now: %v", err)
	}
}

func TestSignedKubeconfigsDoNotMeet(t *testing.T) {
	t.Parallel()
	f, p := newFolder(t)
	s := &supervisor{folder: f, pki: p}
	for _, name := range []string{"alice", ".."} {
		e, err := s.do(context.Background(), request{command: command{Command: "user", user: user{Name: name}}})
		if err != nil || !strings.Contains(e.Content, "client-certificate-data") {
			t.Errorf("user %s: %q, %v", name, e.Content, err)
		}
	}
	if files, err := os.ReadDir(filepath.Join(f.path, "users")); err != nil || len(files) > 0 {
		t.Errorf("files were written, over which two requests could stumble: %v, %v", files, err)
	}
}
