package operator

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// repository is the folder of the whole repository, which builds the local cluster.
const repository = "../../../../.."

// The cluster and the operator in it, which all tests of this binary share.
var (
	admin    client.Client // a foreign hand
	records  = &memory{targets: map[string]string{}}
	requests = &requestLog{} // of the operator
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // a run that fails is a matter of the status here
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests with a cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "webapp-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Twice, with the same data: the garbage collector knows a kind that is there when it starts, and takes half a minute
	// to notice one that comes later.
	err = withCluster(dir, nil, func(config *rest.Config) error {
		options := envtest.CRDInstallOptions{Paths: []string{"../api/v1/webapp.example.com_webapps.yaml"}, ErrorIfPathMissing: true}
		_, err := envtest.InstallCRDs(config, options)
		return err
	})
	if err != nil {
		return 1, err
	}
	err = withCluster(dir, []string{"--nodes=1"}, func(config *rest.Config) error {
		code, err = withOperator(config, m.Run)
		return err
	})
	return code, err
}

func withOperator(config *rest.Config, use func() int) (code int, err error) {
	own := rest.CopyConfig(config)
	own.Wrap(requests.wrap)
	options := ctrl.Options{HealthProbeBindAddress: "0"}
	options.Metrics.BindAddress = "0"
	manager, err := NewManager(own, options, records)
	if err != nil {
		return 1, err
	}
	if admin, err = client.New(config, client.Options{Scheme: manager.GetScheme()}); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }() // waited for below
	code = use()
	cancel()
	return code, <-ended
}

// withCluster builds and starts the repository's local cluster as a separate program, because this module has other
// versions of Kubernetes' libraries. It ends with this process, whatever happens.
func withCluster(dir string, flags []string, use func(*rest.Config) error) (err error) {
	binary := filepath.Join(dir, "localcluster")
	build := exec.Command("go", "build", "-o", binary, "./localcluster/cmd/localcluster")
	build.Dir, build.Stderr = repository, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the local cluster: %w", err)
	}
	cluster := exec.Command(binary, append([]string{"up", "--control", "--dir=" + filepath.Join(dir, "data")}, flags...)...)
	cluster.Dir, cluster.Stderr = repository, os.Stderr
	stdin, err := cluster.StdinPipe() // whose end is the cluster's
	if err != nil {
		return err
	}
	stdout, err := cluster.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cluster.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stdin.Close(), cluster.Wait()) }()

	kubeconfig, err := waitForCluster(stdout)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	return use(config)
}

// waitForCluster reads what the cluster says until it is ready.
func waitForCluster(stdout io.Reader) (kubeconfig string, err error) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var event struct{ Event, Error, Kubeconfig string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return "", fmt.Errorf("read what the cluster says: %w", err)
		}
		switch event.Event {
		case "ready":
			return event.Kubeconfig, nil
		case "failed":
			return "", errors.New(event.Error)
		}
	}
	return "", errors.Join(errors.New("the cluster ended before it was ready"), lines.Err())
}

// memory is a system of records that can be made to fail.
type memory struct {
	mu      sync.Mutex
	targets map[string]string
	fail    error
}

// Ensure implements Records.
func (m *memory) Ensure(_ context.Context, record Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		m.targets[record.Host] = record.Target
	}
	return m.fail
}

// Delete implements Records.
func (m *memory) Delete(_ context.Context, record Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		delete(m.targets, record.Host)
	}
	return m.fail
}

func (m *memory) target(host string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.targets[host], "none")
}

func (m *memory) setFailure(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// requestLog notes requests, without the watches and lists of the caches.
type requestLog struct {
	mu   sync.Mutex
	seen []string
}

func (l *requestLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		if !request.URL.Query().Has("resourceVersion") {
			l.mu.Lock()
			l.seen = append(l.seen, request.Method+" "+request.URL.Path) // before anybody sees what comes of it
			l.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

func (l *requestLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// patience is for machines that are busy with something else.
const patience = 2 * time.Minute

// eventually waits until check returns "". Otherwise it fails the test with the last result of check.
func eventually(t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		last := check(t.Context())
		if last == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v: %s", what, patience, last)
		}
	}
}
