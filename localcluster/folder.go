package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// tempPrefix marks the temporary folders, so that those of clusters that were
	// ended by force (all processes at once) can be found and removed later.
	tempPrefix   = "evenkeel-localcluster-"
	settingsFile = "cluster.json"
	lockFile     = "lock"
	adminFile    = "admin.kubeconfig"
)

// settings are what the components have to know; the supervisor writes them to
// the folder before it starts any. They also say what made the folder.
type settings struct {
	Kubernetes   string `json:"kubernetes"` // version that wrote the data
	Port         int    `json:"port"`
	Temporary    bool   `json:"temporary"`  // whoever ends last removes the folder
	Kubeconfig   string `json:"kubeconfig"` // the administrator's, absolute; written by us
	Controllers  bool   `json:"controllers"`
	Nodes        int    `json:"nodes"`
	FeatureGates string `json:"featureGates,omitempty"`
	Verbose      bool   `json:"verbose,omitempty"`
}

// folder is the cluster's folder:
//
//	cluster.json      settings
//	lock              locked while any process of the cluster lives
//	admin.kubeconfig  the administrator's credentials
//	pki/ users/       keys and certificates; kubeconfigs of users
//	etcd/ etcd.sock   the data, and where etcd listens
//	logs/             one file per component
type folder struct {
	path string
	lock *os.File
	settings
}

// openFolder makes or reopens the folder and locks it.
func openFolder(opts options) (*folder, error) {
	f := &folder{path: opts.Dir}
	if f.path == "" {
		removeStale(os.TempDir())
		var err error
		if f.path, err = os.MkdirTemp("", tempPrefix); err != nil {
			return nil, fmt.Errorf("making a temporary folder for the cluster: %w", err)
		}
		f.Temporary = true
	}
	if err := f.open(opts); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) open(opts options) error {
	path, err := filepath.Abs(f.path)
	if err != nil {
		return fmt.Errorf("finding the folder %s: %w", f.path, err)
	}
	f.path = path
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return fmt.Errorf("making the cluster's folder: %w", err)
	}
	if f.lock, err = lock(filepath.Join(f.path, lockFile)); err != nil {
		return fmt.Errorf("locking the folder %s: %w", f.path, err)
	}
	temporary := f.Temporary
	if err := f.load(); err != nil {
		return err
	}
	f.settings = settings{
		Kubernetes: kubernetesVersion(), Port: cmp.Or(opts.Port, f.Port), Temporary: temporary,
		Kubeconfig: filepath.Join(f.path, adminFile), Controllers: opts.Controllers, Nodes: opts.Nodes,
		FeatureGates: opts.FeatureGates, Verbose: opts.Verbose,
	}
	for _, sub := range []string{"pki", "users", "etcd", "logs"} {
		if err := os.MkdirAll(filepath.Join(f.path, sub), 0o700); err != nil {
			return fmt.Errorf("making the cluster's folder: %w", err)
		}
	}
	return nil
}

// load reads the settings of the run before, if there was one.
func (f *folder) load() error {
	saved, err := loadSettings(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.mustBeEmpty()
	}
	if err != nil {
		return err
	}
	if !sameMinor(saved.Kubernetes, kubernetesVersion()) {
		return fmt.Errorf("the folder %s holds data of Kubernetes %s and this is %s: use another --dir, or delete that one",
			f.path, saved.Kubernetes, kubernetesVersion())
	}
	f.settings = saved
	return nil
}

// sameMinor reports whether two versions differ in the patch at most: those can
// read each other's data.
func sameMinor(a, b string) bool {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	return a == b || errA == nil && errB == nil && va.Major() == vb.Major() && va.Minor() == vb.Minor()
}

// mustBeEmpty keeps us from filling a folder that is somebody else's.
func (f *folder) mustBeEmpty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("looking into the folder %s: %w", f.path, err)
	}
	for _, entry := range entries {
		if entry.Name() != lockFile {
			return fmt.Errorf("the folder %s has other things in it (%s) and is not a cluster's: give --dir an empty or a new folder", f.path, entry.Name())
		}
	}
	return nil
}

func loadSettings(dir string) (settings, error) {
	var s settings
	content, err := os.ReadFile(filepath.Join(dir, settingsFile))
	if err != nil {
		return s, fmt.Errorf("reading the cluster's settings: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("reading the cluster's settings in %s: %w", dir, err)
	}
	return s, nil
}

func (f *folder) save() error {
	content, err := json.MarshalIndent(f.settings, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the cluster's settings: %w", err)
	}
	path := filepath.Join(f.path, settingsFile)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("writing the cluster's settings: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the cluster's settings: %w", err)
	}
	return nil
}

// close gives the folder up: a temporary one is removed. Every component has
// ended before.
func (f *folder) close() {
	if f.Temporary {
		removeCluster(f.path, f.Kubeconfig)
	}
	if f.lock != nil {
		_ = f.lock.Close()
	}
}

// removeCluster removes a temporary folder and the kubeconfig that points into
// it. It tries again while something that has not yet ended still adds files.
func removeCluster(dir, kubeconfig string) {
	for range 10 {
		if os.RemoveAll(dir) == nil {
			break
		}
	}
	if !strings.HasPrefix(kubeconfig, dir) && mayOverwrite(kubeconfig) == nil {
		_ = os.Remove(kubeconfig)
	}
}

var errLocked = errors.New("another localcluster is using it; stop that one first, or choose another folder")

// lock takes the lock file at path, without waiting. The lock belongs to the
// open file: processes that inherit the descriptor hold it too.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// temporaryClusters lists the temporary folders that have settings, by whether a
// process still holds their lock. One without settings is being made right now.
func temporaryClusters(tempDir string) (running, stale []string) {
	found, _ := filepath.Glob(filepath.Join(tempDir, tempPrefix+"*", settingsFile))
	for _, path := range found {
		dir := filepath.Dir(path)
		held, err := lock(filepath.Join(dir, lockFile))
		switch {
		case err == nil:
			stale = append(stale, dir)
			_ = held.Close()
		case errors.Is(err, errLocked):
			running = append(running, dir)
		}
	}
	return running, stale
}

// removeStale removes what clusters left behind whose processes were all killed
// at once, so that none of them could.
func removeStale(tempDir string) {
	_, stale := temporaryClusters(tempDir)
	for _, dir := range stale {
		_ = os.RemoveAll(dir)
	}
}
