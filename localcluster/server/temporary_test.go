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

// temporaryFolder creates the folder of a temporary cluster with the files.
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

func TestOnlyStaleFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	hold(t, temporaryFolder(t, temp, "running", 0o700, settingsFile))
	temporaryFolder(t, temp, "stale", 0o700, settingsFile, lockFile)
	temporaryFolder(t, temp, "stale-without-lock", 0o700, settingsFile)
	temporaryFolder(t, temp, "starting", 0o700, lockFile)
	for _, name := range []string{"half-removed", "killed-early"} {
		dir := temporaryFolder(t, temp, name, 0o700, lockFile)
		old := time.Now().Add(-2 * creationTime)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	hold(t, temporaryFolder(t, temp, "open", 0o755, settingsFile)) // a cluster's folder is never accessible to others
	if err := os.Symlink(temporaryFolder(t, t.TempDir(), "elsewhere", 0o700, settingsFile), filepath.Join(temp, tempPrefix+"link")); err != nil {
		t.Fatal(err)
	}

	running, _ := temporaryClusters(temp)
	if want := []string{filepath.Join(temp, tempPrefix+"running")}; !slices.Equal(running, want) {
		t.Errorf("running clusters are %v, want %v", running, want)
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
		t.Errorf("remaining folders are %v, want %v", left, want)
	}
}

func TestTemporaryClustersCreatesNoLock(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	dir := temporaryFolder(t, temp, "removing", 0o700, settingsFile)
	temporaryClusters(temp)
	if _, err := os.Stat(filepath.Join(dir, lockFile)); !os.IsNotExist(err) {
		t.Errorf("a lock was created: %v", err)
	}
}

// ownedBy is a private directory of another user.
type ownedBy struct {
	fs.FileInfo
	uid int
}

func (o ownedBy) Sys() any { return &syscall.Stat_t{Uid: uint32(o.uid)} }

func TestFolderOfAnotherUserIsNotPrivate(t *testing.T) {
	t.Parallel()
	info, err := os.Lstat(temporaryFolder(t, t.TempDir(), "a", 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if !isPrivate(info) || !isPrivate(ownedBy{info, os.Getuid()}) {
		t.Error("the user's own folder is not private")
	}
	if isPrivate(ownedBy{info, os.Getuid() + 1}) {
		t.Error("another user's folder is private")
	}
}

func TestRemoveClusterKeepsForeignKubeconfig(t *testing.T) {
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
				t.Errorf("the folder still exists: %v", err)
			}
		})
	}
}

func TestForeignKubeconfigIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		wantErr bool
	}{
		"stopped localcluster": {"contexts: [{name: localcluster, context: {cluster: localcluster}}]", false},
		"empty":                {"", false},
		"another cluster":      {"contexts: [{name: production, context: {cluster: production}}]", true},
		"other kubeconfig":     {"apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: b}}]", true},
		"not yaml":             {"\tNo!", true},
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

func TestKubeconfigOfRunningClusterIsKept(t *testing.T) {
	t.Parallel()
	f, p := newFolder(t)
	path := filepath.Join(t.TempDir(), "config")
	f.Port = serveAs(t, f)
	if err := f.writeKubeconfig(p, path, user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	_, other := newFolder(t)
	if err := mayOverwrite(t.Context(), path, p.ca.certPEM); err != nil {
		t.Errorf("own kubeconfig: %v", err)
	}
	err := mayOverwrite(t.Context(), path, other.ca.certPEM)
	if err == nil || !strings.Contains(err.Error(), "another localcluster, which runs at "+f.serverURL()) {
		t.Errorf("kubeconfig of a running cluster: %v", err)
	}
	// Another server now has the port of a stopped cluster.
	if err := f.writeKubeconfig(other, path, user{Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	if err := mayOverwrite(t.Context(), path, p.ca.certPEM); err != nil {
		t.Errorf("kubeconfig of a stopped cluster: %v", err)
	}
}

func TestUserKubeconfigsAreNotWrittenToFiles(t *testing.T) {
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
		t.Errorf("files were written, which concurrent requests would overwrite: %v, %v", files, err)
	}
}
