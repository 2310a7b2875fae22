package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// tempPrefix marks temporary folders, so that a later run finds and removes those of clusters with all processes
	// killed at once.
	tempPrefix   = "evenkeel-cluster-"
	settingsFile = "cluster.json"
	lockFile     = ".localcluster.lock" // unlikely to exist in a folder that is not a cluster's
	adminFile    = "admin.kubeconfig"
)

// settings are the parameters of the components. The supervisor writes them to the folder before it starts a component.
// The file also marks the folder as a cluster's.
type settings struct {
	Kubernetes   string `json:"kubernetes"` // version that wrote the data
	Port         int    `json:"port"`
	SecondPort   int    `json:"secondPort,omitempty"` // of the second API server; 0: none
	Temporary    bool   `json:"temporary"`            // the last process removes the folder
	Kubeconfig   string `json:"kubeconfig"`           // the administrator's, absolute: adminFile, or a copy elsewhere
	Controllers  bool   `json:"controllers"`
	Nodes        int    `json:"nodes"`
	FeatureGates string `json:"featureGates,omitempty"`
	Verbose      bool   `json:"verbose,omitempty"`

	APIServerArgs []string `json:"apiServerArgs,omitempty"`
}

// folder is the cluster's folder:
//
//	cluster.json         settings
//	.localcluster.lock   locked while any process of the cluster lives
//	admin.kubeconfig     the administrator's credentials
//	pki/ users/          keys and certificates; kubeconfigs of users
//	etcd/ etcd.sock      the data, and where etcd listens
//	logs/                one file per component
//
// Its content gives administrator access, so only its owner may read it.
type folder struct {
	path string
	lock *os.File
	kept bool // contains data of an earlier run
	settings
}

// openFolder creates or reopens the folder and locks it.
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
	if err := f.load(); err != nil { // before any write, because the folder may not be a cluster's
		return err
	}
	if f.lock, err = lock(filepath.Join(f.path, lockFile)); err != nil {
		return fmt.Errorf("locking the folder %s: %w", f.path, err)
	}
	if err := f.load(); err != nil { // again: it may have changed before the lock was taken
		return err
	}
	if err := os.Chmod(f.path, 0o700); err != nil {
		return fmt.Errorf("closing the folder to other users: %w", err)
	}
	f.settings = settings{
		Kubernetes: kubernetesVersion(), Port: cmp.Or(opts.Port, f.Port), Temporary: opts.Dir == "",
		Kubeconfig: filepath.Join(f.path, adminFile), Controllers: opts.Controllers, Nodes: opts.Nodes,
		FeatureGates: opts.FeatureGates, Verbose: opts.Verbose, APIServerArgs: opts.APIServerArgs,
	}
	for _, sub := range []string{"pki", "users", "etcd", "logs"} {
		if err := os.MkdirAll(filepath.Join(f.path, sub), 0o700); err != nil {
			return fmt.Errorf("making the cluster's folder: %w", err)
		}
	}
	return nil
}

// load reads the settings of an earlier run. Without settings the folder must be empty.
func (f *folder) load() error {
	saved, err := loadSettings(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.mustBeEmpty()
	}
	if err != nil {
		return err
	}
	if !sameMinor(saved.Kubernetes, kubernetesVersion()) {
		return fmt.Errorf("the folder %s holds data of Kubernetes %s and this is %s: use another --dir, or "+
			"delete that one",
			f.path, saved.Kubernetes, kubernetesVersion())
	}
	f.Port, f.kept = saved.Port, true
	return nil
}

// sameMinor reports whether two versions differ at most in the patch number. Such versions can read each other's data.
func sameMinor(a, b string) bool {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	return a == b || errA == nil && errB == nil && va.Major() == vb.Major() && va.Minor() == vb.Minor()
}

// mustBeEmpty returns an error for a folder with files that are not a cluster's. The lock file alone is from an earlier
// start that failed.
func (f *folder) mustBeEmpty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("looking into the folder %s: %w", f.path, err)
	}
	isLock := func(e fs.DirEntry) bool { return e.Name() == lockFile }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return fmt.Errorf("the folder %s contains other files (%s) and is not a cluster's: set --dir to an empty or "+
			"a new folder", f.path, entries[0].Name())
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
	if err := writePrivate(filepath.Join(f.path, settingsFile), content); err != nil {
		return fmt.Errorf("writing the cluster's settings: %w", err)
	}
	return nil
}

// writePrivate writes a file that only its owner can read. The write is atomic, also with concurrent writers.
func writePrivate(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// close releases the lock, and removes a temporary folder. All components must have ended.
func (f *folder) close() {
	if f.lock == nil {
		if f.Temporary {
			_ = os.Remove(f.path) // nothing is written before the lock is taken
		}
		return
	}
	if f.Temporary {
		removeCluster(f.path, f.Kubeconfig)
	}
	_ = f.lock.Close()
}

var errLocked = errors.New("another localcluster is using it: stop it first, or choose another folder")

// lock takes the lock file at path without blocking. The lock belongs to the open file, so processes that inherit the
// descriptor hold it too.
func lock(path string) (*os.File, error) {
	return openAndLock(path, os.O_CREATE|os.O_RDWR)
}

// lockExisting is like lock, but the file must exist.
func lockExisting(path string) (*os.File, error) {
	return openAndLock(path, os.O_RDWR)
}

func openAndLock(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
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
