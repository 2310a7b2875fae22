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

// makingTime is how long a temporary folder without settings may be one that is
// being made right now.
const makingTime = time.Minute

// temporaryClusters lists the temporary folders by whether a process still holds
// their lock. The folder of all temporary folders is open to other users, so only
// what is ours, and was never open to them, counts: a kubeconfig from somebody
// else could name a program for kubectl to run.
func temporaryClusters(tempDir string) (running, stale []string) {
	found, _ := filepath.Glob(filepath.Join(tempDir, tempPrefix+"*"))
	for _, dir := range found {
		info, err := os.Lstat(dir)
		if err != nil || !isPrivate(info) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, settingsFile)); err != nil && time.Since(info.ModTime()) < makingTime {
			continue // even to look whether its lock is free would be in the way of its maker
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

// isPrivate reports whether it is a directory of this user, closed to others.
func isPrivate(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return info.IsDir() && info.Mode().Perm()&0o077 == 0 && ok && int(owner.Uid) == os.Getuid()
}

// removeStale removes what clusters left behind whose processes were all killed
// at once, so that none of them could.
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

// removeCluster removes a temporary folder, and the administrator's kubeconfig if
// that is elsewhere and still this cluster's: of two clusters with the same
// --kubeconfig, the later one has replaced it.
//
// The settings go last but for the folder, so that whoever finds the remains of a
// removal that was interrupted knows what they are.
func removeCluster(dir, kubeconfig string) {
	if kubeconfig != "" && filepath.Dir(kubeconfig) != dir && belongsTo(kubeconfig, dir) {
		_ = os.Remove(kubeconfig)
	}
	for range 10 { // while something that has not yet ended still adds files
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

// belongsTo reports whether a kubeconfig trusts the authority of the cluster in
// dir, which is that cluster's alone.
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
