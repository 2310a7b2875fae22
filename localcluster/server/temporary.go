package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// creationTime is how long a temporary folder without settings counts as being created by another process.
const creationTime = time.Minute

// temporaryClusters returns the temporary folders, by whether a process still holds their lock. Other users can write
// to the parent folder. It therefore ignores folders that belong to another user or are accessible to others: a foreign
// kubeconfig could make kubectl run any program.
func temporaryClusters(tempDir string) (running, stale []string) {
	found, _ := filepath.Glob(filepath.Join(tempDir, tempPrefix+"*"))
	for _, dir := range found {
		info, err := os.Lstat(dir)
		if err != nil || !isPrivate(info) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, settingsFile)); err != nil &&
			time.Since(info.ModTime()) < creationTime {
			continue // testing its lock could make the start of its creator fail
		}
		held, err := lockExisting(filepath.Join(dir, lockFile))
		switch {
		case errors.Is(err, errLocked):
			running = append(running, dir)
		case errors.Is(err, fs.ErrNotExist):
			stale = append(stale, dir)
		case err == nil:
			stale = append(stale, dir)
			_ = held.Close()
		}
	}
	return running, stale
}

// isPrivate reports whether it is a directory of this user that others cannot access.
func isPrivate(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return info.IsDir() && info.Mode().Perm()&0o077 == 0 && ok && int(owner.Uid) == os.Getuid()
}

// removeStale removes the folders of clusters with all processes killed at once, because no process was left to do so.
func removeStale(tempDir string) {
	_, stale := temporaryClusters(tempDir)
	for _, dir := range stale {
		kubeconfig := ""
		if s, err := loadSettings(dir); err == nil {
			kubeconfig = s.Kubeconfig
		}
		removeCluster(dir, kubeconfig)
	}
}

// removeCluster removes a temporary folder, and the administrator's kubeconfig if that is elsewhere and still belongs
// to this cluster. If two clusters have the same --kubeconfig, the later one has replaced it.
//
// The settings are removed last before the folder, so that the remains of an interrupted removal can be identified.
func removeCluster(dir, kubeconfig string) {
	if kubeconfig != "" && filepath.Dir(kubeconfig) != dir && belongsTo(kubeconfig, dir) {
		_ = os.Remove(kubeconfig)
	}
	for range 10 { // a process that is still ending may add files
		removeAllBut(dir, settingsFile)
		_ = os.Remove(filepath.Join(dir, settingsFile))
		if os.RemoveAll(dir) == nil {
			return
		}
	}
}

func removeAllBut(dir, keep string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Name() != keep {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}

// belongsTo reports whether a kubeconfig trusts the authority of the cluster in dir. Each cluster has its own
// authority.
func belongsTo(kubeconfig, dir string) bool {
	authority, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	if err != nil {
		return false
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return false
	}
	cluster := config.Clusters[contextName]
	return cluster != nil && bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(authority))
}
