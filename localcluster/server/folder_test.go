package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFolderRejected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ file, content, want string }{
		"another version":  {settingsFile, `{"kubernetes":"v1.20.1"}`, "holds data of Kubernetes v1.20.1"},
		"unrelated file":   {"thesis.tex", "", "thesis.tex"},
		"invalid settings": {settingsFile, "{", "reading the cluster's settings"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, test.file), test.content)
			_, err := openFolder(options{Dir: dir})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want an error with %q and the folder", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(dir, test.file)); err != nil {
				t.Errorf("the folder's file was removed: %v", err)
			}
		})
	}
}

func TestFolderKeepsPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := openFolder(options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	first.Port = 1234
	if err := first.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(options{Dir: dir}); !errors.Is(err, errLocked) {
		t.Errorf("second open: %v, want %v", err, errLocked)
	}
	first.close()
	second, err := openFolder(options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if second.Port != 1234 {
		t.Errorf("port is %d, want the port of the first run", second.Port)
	}
}

func TestRejectedFolderIsUnchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "thesis.tex"), "")
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(options{Dir: dir}); err == nil {
		t.Fatal("openFolder accepted a folder with another file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder contains %v, %v; want only the file", entries, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the folder's mode changed to %v, %v", info.Mode(), err)
	}
}

func TestFolderIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v, %v; want 0700", info.Mode(), err)
	}
}

func TestFolderOfFailedStartIsReused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		f, err := openFolder(options{Dir: dir}) // creates the lock and other files, but no settings
		if err != nil {
			t.Fatal(err)
		}
		f.close()
	}
}

func TestUserKubeconfigsHaveCurrentPort(t *testing.T) {
	t.Parallel()
	f, p := newFolder(t)
	path := f.userKubeconfig("alice")
	if err := f.writeKubeconfig(p, path, user{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	f.Port++
	if err := f.moveUsers(); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.Clusters[contextName].Server, f.serverURL(); got != want {
		t.Errorf("server is %s, want %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v; want 0600", info.Mode(), err)
	}
}

func TestFailedStartKeepsForeignKubeconfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	const content = "contexts: [{name: production, context: {cluster: production}}]"
	writeFile(t, path, content)
	taken, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	for what, opts := range map[string]options{
		"kubeconfig": {Kubeconfig: path},
		"port":       {Kubeconfig: path, Port: port},
	} {
		if err := supervise(t.Context(), opts, person{}, nil); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error about the %s", err, what)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("after an error about the %s the file has %q, %v", what, got, err)
		}
	}
}

func TestReservedPortRefusesConnectionsUntilListen(t *testing.T) {
	t.Parallel()
	port, release, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	for range 2 { // twice, as for a server that is killed and restarted
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			t.Error("a reserved port accepts connections")
		}
		if _, _, err := reservePort(port); err == nil || !strings.Contains(err.Error(), "is used by another program") {
			t.Errorf("second reservation: %v", err)
		}
		listener, err := listenReserved(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := reservePort(port); err == nil {
			t.Error("a port with a listener can be reserved")
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = listener.Close()
	}
}

func TestCertificateHasNameAndGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := openPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !first.ca.cert.Equal(second.ca.cert) {
		t.Error("the second open created another authority")
	}
	pair, err := second.client(user{Name: "alice", Groups: []string{"dev", "ops"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.cert.Subject.String(); got != "CN=alice,O=dev+O=ops" {
		t.Errorf("subject is %s", got)
	}
	if err := pair.cert.CheckSignatureFrom(first.ca.cert); err != nil {
		t.Error(err)
	}
}
