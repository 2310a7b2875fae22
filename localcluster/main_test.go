package localcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also runs other programs, depending on the name of the binary: tests create links to the test binary.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "fake-broken":
		fmt.Fprintln(os.Stderr, "disk failure")
		os.Exit(3)
	case "fake-failing":
		fmt.Println(`{"event":"failed","error":"port 1 is in use"}`)
		os.Exit(1)
	case "fake-silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "fake-dying":
		fakeDying()
	case "parent":
		parent()
		os.Exit(0) // without running the tests, which would start more parents
	}
	// The tests are about clusters that they start.
	if err := os.Unsetenv(EnvExisting); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// program returns a path that runs the test binary as the program name.
func program(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeDying is a supervisor with an API server that ends at the first command.
func fakeDying() {
	kubeconfig := filepath.Join(filepath.Dir(os.Args[0]), "admin.kubeconfig")
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"c","user":{}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		panic(err)
	}
	fmt.Printf(`{"event":"ready","kubeconfig":%q}`+"\n", kubeconfig)
	bufio.NewScanner(os.Stdin).Scan()
	fmt.Println(`{"event":"failed","error":"apiserver ended by itself"}`)
	os.Exit(1)
}

// parent starts a cluster, prints its processes, and waits to be killed.
func parent() {
	cluster, err := Start(context.Background(), Config{Nodes: 1})
	if err != nil {
		panic(err)
	}
	reply, err := cluster.supervisor.request(context.Background(), command{Command: "status"})
	if err != nil {
		panic(err)
	}
	reply.Processes["supervisor"] = cluster.supervisor.cmd.Process.Pid
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
