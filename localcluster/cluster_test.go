package localcluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// The tests in this file and in controllers_test.go start real clusters. If the binary is not cached, the first test
// builds it, which takes minutes.

// start starts a cluster and stops it at the end of the test. Tests with a cluster run in make test-all.
func start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	testlength.OnlyLong(t)
	began := time.Now()
	cluster, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(began))
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
	return cluster
}

// clientFor returns a client with its own connections, which are closed at the end of the test.
func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until done returns true. An error fails the test at once.
func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	began := time.Now()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 40*time.Second, true, done)
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
	t.Logf("%s after %v", what, time.Since(began))
}

// processes returns the process IDs by component.
func processes(ctx context.Context, t *testing.T, cluster *Cluster) map[string]int {
	t.Helper()
	reply, err := cluster.supervisor.request(ctx, command{Command: "status"})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Processes
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestAPIServerOnly(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{
		Users:        []User{{Name: "alice", Groups: []string{"developers", "testers"}}},
		FeatureGates: map[string]bool{"ShardedListAndWatch": true},
	})
	ctx := t.Context()
	admin := clientFor(t, cluster.RESTConfig())

	t.Run("version", func(t *testing.T) {
		version, err := admin.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		want, err := requestedVersion("")
		if err != nil {
			t.Fatal(err)
		}
		if full := "v" + cmp.Or(want.full, defaultKubernetes); version.GitVersion != full {
			t.Errorf("the server's version is %s, want %s", version.GitVersion, full)
		}
	})
	t.Run("pods can be created", func(t *testing.T) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "alone"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if _, err := admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("feature gates", func(t *testing.T) {
		metrics, err := admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := `kubernetes_feature_enabled{name="ShardedListAndWatch",stage="ALPHA"} 1`; !strings.Contains(string(metrics), want) {
			t.Errorf("the server's metrics lack %s", want)
		}
	})
	t.Run("users are authorized by name and groups", func(t *testing.T) {
		testUsers(t, cluster, admin)
	})
	t.Run("users can be created concurrently", func(t *testing.T) {
		var group sync.WaitGroup
		for range 60 {
			group.Go(func() {
				if _, err := cluster.User(ctx, "carol", "guests"); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
	t.Run("data survives a killed server", func(t *testing.T) {
		testKillAndRestart(t, cluster, admin)
	})
}

func testUsers(t *testing.T, cluster *Cluster, admin kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	config, err := cluster.User(ctx, "alice") // with the groups of Config.Users
	if err != nil {
		t.Fatal(err)
	}
	alice := clientFor(t, config)
	_, err = alice.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "alice" cannot list resource "configmaps"`) {
		t.Fatalf("list without a rule: %v", err)
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "testers"}},
	}
	if _, err := admin.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rule applies to the group", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	config, err = cluster.User(ctx, "system:weird/bob", "strangers")
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientFor(t, config).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "system:weird/bob"`) {
		t.Errorf("list as a member of another group: %v", err)
	}
}

func testKillAndRestart(t *testing.T, cluster *Cluster, admin kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	created, err := admin.CoreV1().ConfigMaps("default").Create(ctx, configMap("kept"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	address := strings.TrimPrefix(cluster.RESTConfig().Host, "https://")
	if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the killed server accepts connections")
	}
	for _, how := range []string{"after Kill", "alive"} {
		began := time.Now()
		if err := cluster.Restart(ctx); err != nil {
			t.Fatalf("restart %s: %v", how, err)
		}
		t.Logf("restarted %s in %v", how, time.Since(began))
		kept, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		if err != nil || kept.UID != created.UID {
			t.Fatalf("after restart %s: got %v, %v; want the earlier object", how, kept.UID, err)
		}
	}
}

func TestDirKeepsDataPortAndCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	first := start(t, Config{Dir: dir, Nodes: 2})
	ctx := t.Context()
	client := clientFor(t, first.RESTConfig())
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	_, err := Start(ctx, Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another localcluster is using it") {
		t.Errorf("start with a folder in use: %v", err)
	}
	address := strings.TrimPrefix(first.RESTConfig().Host, "https://")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(ctx, Config{Port: number})
	if err == nil || !strings.Contains(err.Error(), "port "+port) || !strings.Contains(err.Error(), "is used by another program") {
		t.Errorf("start with a port in use: %v", err)
	}

	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, Config{Dir: dir, Nodes: 1})
	if got, want := second.RESTConfig().Host, first.RESTConfig().Host; got != want {
		t.Errorf("address is %s after a restart, was %s", got, want)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("with the earlier client: %v", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "node-0" {
		t.Errorf("with one node instead of two the nodes are %v, %v; want node-0", nodes, err)
	}
	makeDeployment(t, client, "default", "in-old-data")
	wantPrivate(t, dir)
}

// TestSecondServerAndCompact reads an old version before and after a compaction, from both servers.
func TestSecondServerAndCompact(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{SecondServer: true})
	ctx := t.Context()
	first, second := clientFor(t, cluster.RESTConfig()), clientFor(t, cluster.SecondRESTConfig())
	created, err := first.CoreV1().ConfigMaps("default").Create(ctx, configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := second.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	if err != nil || found.UID != created.UID {
		t.Fatalf("second server: got the uid %v, %v; want %v", found.UID, err, created.UID)
	}
	if _, err := first.CoreV1().ConfigMaps("default").Create(ctx, configMap("b"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := metav1.ListOptions{ResourceVersion: created.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if list, err := first.CoreV1().ConfigMaps("default").List(ctx, old); err != nil || len(list.Items) != 1 {
		t.Fatalf("before the compaction: %d objects, %v; want 1", len(list.Items), err)
	}
	for range 2 {
		if err := cluster.Compact(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := first.CoreV1().ConfigMaps("default").List(ctx, old); !apierrors.IsResourceExpired(err) {
		t.Errorf("list of a version that was compacted: %v", err)
	}
	watch, err := first.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if event := <-watch.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("watch from a version before the restart: %v", event)
	}
	if _, err := second.CoreV1().ConfigMaps("default").Get(ctx, "b", metav1.GetOptions{}); err != nil {
		t.Errorf("second server after a restart of the first: %v", err)
	}
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Compact(ctx); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("compaction without a server: %v", err)
	}
}

// wantPrivate fails if other users could access a file in dir, even if dir itself were accessible.
func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // etcd has removed it concurrently
		}
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if name := entry.Name(); name == "ca.key" || name == "etcd.sock" {
			seen++
		}
		return nil
	})
	if err != nil || seen != 2 {
		t.Errorf("walking %s: %v; found %d of the key and the socket", dir, err, seen)
	}
}

func TestNotReadyErrorHasLogLines(t *testing.T) {
	testlength.OnlyLong(t)
	t.Parallel()
	// The API server logs each failed check of etcd, and is never ready.
	_, err := Start(t.Context(), Config{ReadyTimeout: 5 * time.Second, APIServerArgs: []string{"--etcd-readycheck-timeout=1ns"}})
	for _, want := range []string{"waiting for apiserver: not ready within 5s: ", "last log lines", "increase the ready timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestRejectedFeatureGateOrFlag(t *testing.T) {
	testlength.OnlyLong(t)
	t.Parallel()
	binary, err := Build(t.Context(), "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	other := map[bool]string{true: "1.36", false: "1.37"}[os.Getenv(envKubernetesVersion) == "1.37"]
	for unknown, config := range map[string]Config{
		"NoSuchGate":                 {FeatureGates: map[string]bool{"NoSuchGate": true}},
		"--no-such-flag":             {APIServerArgs: []string{"--no-such-flag=1"}},
		"always has its own etcd":    {APIServerArgs: []string{"--etcd-servers=unix:///none"}},
		"this binary has Kubernetes": {KubernetesVersion: other, Binary: binary},
	} {
		if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), unknown) {
			t.Errorf("%s: got %v", unknown, err)
		}
	}
}

// TestClusterEndsWithKilledParent kills a process with a whole cluster by SIGKILL, which it cannot handle.
func TestClusterEndsWithKilledParent(t *testing.T) {
	testlength.OnlyLong(t)
	t.Parallel()
	for _, victim := range []string{"parent", "supervisor"} {
		t.Run(victim+" is killed", func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program(t, "parent"))
			stdin, err := cmd.StdinPipe() // ends the cluster if this test dies
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			if len(e.Processes) != 5 {
				t.Errorf("processes are %v, want 5 of them", e.Processes)
			}
			e.Processes["parent"] = cmd.Process.Pid
			process, err := os.FindProcess(e.Processes[victim])
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Kill(); err != nil {
				t.Fatal(err)
			}
			if victim == "parent" {
				_ = cmd.Wait()
			}
			delete(e.Processes, "parent") // this test's own child, which it waits for itself
			eventually(t, "all processes and the folder are gone", func(context.Context) (bool, error) {
				_, err := os.Stat(e.Dir)
				gone := os.IsNotExist(err)
				for _, pid := range e.Processes {
					gone = gone && !runs(pid)
				}
				return gone, nil
			})
			_ = stdin.Close()
			if victim != "parent" {
				_ = cmd.Wait()
			}
		})
	}
}

// runs reports whether the process still runs. A zombie does not.
func runs(pid int) bool {
	output, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	state := strings.TrimSpace(string(output))
	return err == nil && state != "" && !strings.HasPrefix(state, "Z")
}
