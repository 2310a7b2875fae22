package main

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serveAs accepts TLS connections with the certificate of the cluster in f until the test ends, and returns the port.
func serveAs(t *testing.T, f *folder) int {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.path, "pki", "apiserver.crt"), filepath.Join(f.path, "pki", "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp4", loopback+":0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // the cleanup waits for it
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if conn, ok := conn.(*tls.Conn); ok {
				_ = conn.HandshakeContext(t.Context())
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().(*net.TCPAddr).Port
}

// Not parallel: it changes the environment.
func TestChooseKubeconfig(t *testing.T) {
	stopped, _ := newFolder(t)
	running, p := newFolder(t)
	running.Port = serveAs(t, running)
	for _, f := range []*folder{stopped, running} {
		if err := f.writeKubeconfig(p, filepath.Join(f.path, adminFile), user{Name: "admin"}); err != nil {
			t.Fatal(err)
		}
		if err := f.save(); err != nil {
			t.Fatal(err)
		}
	}
	theirs := filepath.Join(t.TempDir(), "config")
	writeFile(t, theirs, "current-context: production\ncontexts: [{name: production, context: {cluster: production}}]")
	none, one, two := t.TempDir(), t.TempDir(), t.TempDir()
	for i, temp := range []string{one, two, two} {
		hold(t, temporaryFolder(t, temp, string(rune('a'+i)), 0o700, settingsFile))
	}
	hold(t, temporaryFolder(t, none, "planted", 0o755, settingsFile))
	inOne := filepath.Join(one, tempPrefix+"a", adminFile)
	admin := filepath.Join(running.path, adminFile)
	get := []string{"get", "pods"}

	tests := map[string]struct {
		args            []string
		inherited, temp string
		want            string
		wantArgs        []string
		wantErr         string
	}{
		"one running cluster":                {get, "", one, inOne, get, ""},
		"no running cluster":                 {get, "", none, "", nil, "no cluster is running"},
		"two running clusters":               {get, "", two, "", nil, "2 clusters are running"},
		"KUBECONFIG of a localcluster":       {get, admin, two, "", get, ""},
		"KUBECONFIG of another cluster":      {get, theirs, one, "", nil, "KUBECONFIG is " + theirs + ", which is not a localcluster: set --kubeconfig, or unset KUBECONFIG"},
		"KUBECONFIG of a missing file":       {get, theirs + "x", one, "", nil, "which is not a localcluster"},
		"--kubeconfig before KUBECONFIG":     {[]string{"--kubeconfig", theirs, "get"}, theirs, one, "", []string{"--kubeconfig", theirs, "get"}, ""},
		"--kubeconfig= anywhere":             {[]string{"get", "--kubeconfig=" + theirs}, theirs, one, "", []string{"get", "--kubeconfig=" + theirs}, ""},
		"--kubeconfig of another program":    {[]string{"exec", "p", "--", "x", "--kubeconfig=y"}, "", one, inOne, []string{"exec", "p", "--", "x", "--kubeconfig=y"}, ""},
		"--dir":                              {[]string{"--dir", running.path, "get"}, theirs, two, admin, []string{"get"}, ""},
		"--dir=":                             {[]string{"--dir=" + running.path, "get"}, theirs, two, admin, []string{"get"}, ""},
		"--dir of a stopped cluster":         {[]string{"--dir", stopped.path}, "", one, "", nil, "the cluster in " + stopped.path + " is not running: start it with 'localcluster --dir " + stopped.path},
		"--dir of another folder":            {[]string{"--dir", none}, "", one, "", nil, "is not the folder of a cluster"},
		"--dir of another program's is kept": {[]string{"cp", "--dir", none}, "", one, inOne, []string{"cp", "--dir", none}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.inherited)
			got, args, err := chooseKubeconfig(test.args, test.temp)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want an error with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || got != test.want || !slices.Equal(args, test.wantArgs) {
				t.Errorf("got %q, %q, %v; want %q, %q", got, args, err, test.want, test.wantArgs)
			}
		})
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}
