package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFolderIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ file, content, want string }{
		"of another version":   {settingsFile, `{"kubernetes":"v1.20.1"}`, "holds data of Kubernetes v1.20.1"},
		"of something else":    {"thesis.tex", "", "thesis.tex"},
		"with broken settings": {settingsFile, "{", "reading the cluster's settings"},
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
				t.Errorf("the folder's file is gone: %v", err)
			}
		})
	}
}

func TestFolderRemembersItsPort(t *testing.T) {
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
		t.Errorf("opening it twice: %v, want %v", err, errLocked)
	}
	first.close()
	second, err := openFolder(options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if second.Port != 1234 {
		t.Errorf("port is %d, want the one from before", second.Port)
	}
}

func TestStaleFoldersAreRemovedAndOthersNot(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	for _, name := range []string{"running", "stale", "starting"} {
		dir := filepath.Join(temp, tempPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "starting" {
			writeFile(t, filepath.Join(dir, settingsFile), "{}")
		}
	}
	held, err := lock(filepath.Join(temp, tempPrefix+"running", lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	removeStale(temp)
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 2 || left[0].Name() != tempPrefix+"running" || left[1].Name() != tempPrefix+"starting" {
		t.Errorf("left are %v, %v; want the running and the starting one", left, err)
	}
}

func TestKubeconfigOfOthersIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		wantErr bool
	}{
		"ours":           {"contexts: [{name: localcluster, context: {cluster: localcluster}}]", false},
		"empty":          {"", false},
		"somebody's":     {"contexts: [{name: production, context: {cluster: production}}]", true},
		"something else": {"apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: b}}]", true},
		"not yaml":       {"\tNo!", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config")
			writeFile(t, path, test.content)
			if err := mayOverwrite(path); (err != nil) != test.wantErr {
				t.Errorf("got %v, want an error: %v", err, test.wantErr)
			}
		})
	}
}

func TestFailedStartKeepsTheKubeconfigOfOthers(t *testing.T) {
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

func TestReservedPortRefusesUntilItIsListenedOn(t *testing.T) {
	t.Parallel()
	port, release, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	for range 2 { // as a server that is killed and started again
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			t.Error("a reserved port takes connections")
		}
		if _, _, err := reservePort(port); err == nil || !strings.Contains(err.Error(), "is taken by another program") {
			t.Errorf("reserving it again: %v", err)
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

func TestCertificateCarriesNameAndGroups(t *testing.T) {
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
		t.Error("opening it again made another authority")
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

func TestFailedChecks(t *testing.T) {
	t.Parallel()
	body := "[+]ping ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n[+]etcd ok\nreadyz check failed\n"
	if got, want := failedChecks(body), "poststarthook/rbac/bootstrap-roles failed: reason withheld"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
