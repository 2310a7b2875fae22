package manager_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testfile"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/retry"
)

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write testdata/operations anew, which docs/operations.md shows: then run make docs")

// TestOperations brings an operator into the states of docs/operations.md, and compares its output with the files that
// the page shows.
func TestOperations(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]func(o *operator) string{
		"unselected":  objectNotSelected,
		"failing":     keyFailing,
		"growing":     queueGrowing,
		"stuck":       handlerStuck,
		"interrupted": processEnded,
		"standby":     standbyWaiting,
		"noleader":    leaseForbidden,
		"notready":    notReady,
		"unreachable": serverUnreachable,
		"slow":        serverSlow,
		"writes":      tooManyWrites,
		"readonly":    writesSwitchedOff,
		"memory":      cacheSizes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { golden(t, name, output(newOperator(t))) })
		})
	}
}

// golden compares an output with its file, without the space around it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	testfile.Expect(t, filepath.Join("testdata", "operations", name+".txt"), strings.TrimSpace(got)+"\n", *update)
}

func objectNotSelected(o *operator) string {
	o.controller.Retriever = informer.RetrieveSelected[*unstructured.Unstructured](o.cluster, kube.Selection{Kind: website(), LabelSelector: "tier=gold"})
	o.site("web", 1)
	o.start()
	return o.curl("/debug/websites?key=shop/web", ".explanation[]")
}

func keyFailing(o *operator) string {
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error {
		return errors.New("the registry does not answer")
	}
	o.site("web", 1)
	o.start()
	time.Sleep(18 * time.Minute)
	return o.log("handler failed", 1) + o.curl("/debug/websites", ".problems[].message") +
		o.metrics("^evenkeel_controller_failures_total.* [1-9]")
}

func queueGrowing(o *operator) string {
	o.controller.Workers = 3
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error {
		time.Sleep(1013 * time.Millisecond)
		return nil
	}
	o.start()
	for i := range 1500 {
		o.site(fmt.Sprint("site-", i), 1)
		time.Sleep(199 * time.Millisecond)
	}
	return o.curl("/debug/websites", ".workers, .queue, .problems[].message")
}

func handlerStuck(o *operator) string {
	release := make(chan struct{})
	o.controller.Runs.StuckAfter, o.controller.Runs.UnreadyWhenStuck = 5*time.Minute, true
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error { <-release; return nil }
	o.site("web", 1)
	o.start()
	time.Sleep(6 * time.Minute)
	output := o.failed()
	close(release)
	return output
}

// processEnded copies the files of a controller while it handles shop/web, as a process leaves them that ends then.
func processEnded(o *operator) string {
	o.site("web", 1)
	dir, handling := o.t.TempDir(), make(chan struct{})
	former := o.controller
	former.Runs.StateDir, former.Metrics = o.t.TempDir(), nil
	former.Handler = func(ctx context.Context, _ *unstructured.Unstructured) error {
		close(handling)
		<-ctx.Done()
		return ctx.Err()
	}
	former.Runs.DrainTimeout = -1
	ctrl, err := controller.New(former)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error)
	go func() { ended <- ctrl.Run(ctx) }() // waited for below
	<-handling
	err = os.CopyFS(dir, os.DirFS(former.Runs.StateDir))
	cancel()
	if err := errors.Join(err, <-ended); err != nil {
		o.t.Fatal(err)
	}
	o.site("api", 1)
	o.controller.Runs.StateDir = dir
	release := make(chan struct{})
	defer close(release)
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error { <-release; return nil }
	o.start()
	return o.log("problem=interrupted", 1) + o.curl("/debug/websites?key=shop/web", ".explanation[]") +
		o.metrics("^evenkeel_controller_problems_active.*interrupted")
}

func standbyWaiting(o *operator) string {
	o.another("website-operator-0")
	o.identity = "website-operator-1"
	o.start()
	return o.curl("/debug", ".lease, .state, .leader")
}

func leaseForbidden(o *operator) string {
	o.Hook(forbidden("/leases", "get", "leases", "coordination.k8s.io", "in the namespace \"shop\"", "website-operator"))
	o.start()
	return o.failed()
}

func notReady(o *operator) string {
	lists := forbidden("/deployments", "list", "deployments", "apps", "at the cluster scope", "")
	o.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/configmaps") {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return lists(req, do)
	})
	for name, kind := range map[string]schema.GroupVersionKind{
		"deployments": appsv1.SchemeGroupVersion.WithKind("Deployment"),
		"backups":     {Group: "example.com", Version: "v1", Kind: "Backup"},
		"configmaps":  {Version: "v1", Kind: "ConfigMap"},
	} {
		o.cache(name, kind)
	}
	o.certificate(5 * time.Second)
	o.start()
	return o.failed()
}

func serverUnreachable(o *operator) string {
	o.cache("deployments", appsv1.SchemeGroupVersion.WithKind("Deployment"))
	o.start()
	o.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 96, 0, 1), Port: 443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	})
	o.Break("deployments", false)
	time.Sleep(time.Minute)
	return o.failed() + o.metrics("^evenkeel_informer_(failing.* 1|staleness)") + o.log("leadership lost, work", 1)
}

func serverSlow(o *operator) string {
	o.controller.Handler = o.count
	o.start()
	o.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPatch {
			time.Sleep(3 * time.Second)
		}
		return do(), nil
	})
	o.site("web", 1)
	time.Sleep(time.Minute)
	return o.curl("/debug/websites?key=shop/web", ".explanation[]")
}

func tooManyWrites(o *operator) string {
	o.controller.Handler = o.count
	o.start()
	for i := range 20 {
		o.site("web", i)
		time.Sleep(time.Second)
	}
	return o.metrics("^evenkeel_controller_writes_total") + o.curl("/debug/websites", ".runs[0].causes, .runs[0].writes")
}

func writesSwitchedOff(o *operator) string {
	o.controller.Handler = o.count
	o.cluster.SetReadOnly(true)
	o.site("web", 1)
	o.start()
	return o.log("handler failed", 1) + o.curl("/readyz", "")
}

func cacheSizes(o *operator) string {
	for i := range 500 {
		o.site(fmt.Sprint("site-", i), 1)
	}
	o.start()
	// The compressed size depends on the random uids.
	return regexp.MustCompile(`(\d\d)\d{4}\n`).ReplaceAllString(o.metrics("^evenkeel_informer_(cache_bytes|objects)"), "${1}0000\n")
}

// operator is an operator of Websites in a manager, with its API server.
type operator struct {
	*apitest.Server
	t          *testing.T
	cluster    *kube.Cluster
	client     dynamic.Interface
	identity   string
	lease      *leader.Config
	controller controller.Config[*unstructured.Unstructured]
	config     manager.Config
	listener   *pipes
	folder     string // of the certificate
	logs       testlog.Buffer
}

func websites() schema.GroupVersionResource { return apitest.Version().WithResource("websites") }

func website() schema.GroupVersionKind { return websites().GroupVersion().WithKind("Website") }

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{
		t: t, identity: "website-operator-0", listener: newPipes(),
		Server: apitest.New(apitest.Websites(), apitest.Deployments(), apiserver.ConfigMaps(), apiserver.Leases()),
	}
	// Without a lease, the first leader waits for LeaseDuration.
	o.Edit("leases", kube.Key{Namespace: "shop", Name: "website-operator"}, "kubectl",
		func(map[string]any) bool { return true })
	o.cluster, o.client = apitest.Connect(o.Server.Config("website-operator"))
	logger := slog.New(slog.NewTextHandler(&o.logs, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	registry := prometheus.NewRegistry()
	recorder, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	o.cluster.SetLogger(logger)
	o.lease = &leader.Config{Cluster: o.cluster, Namespace: "shop", Name: "website-operator"}
	o.controller = controller.Config[*unstructured.Unstructured]{
		Name: "websites", Logger: logger, Metrics: recorder, ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](o.cluster, kube.Selection{Kind: website()}),
		Retry:     retry.Config{Every: retry.Policy{Base: time.Second, Jitter: -1}},
		Handler:   func(context.Context, *unstructured.Unstructured) error { return nil },
	}
	o.config = manager.Config{
		Listener: o.listener, IgnoreSignals: true, Logger: logger,
		Handlers: map[string]http.Handler{"GET /metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
	}
	return o
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// cache adds an informer to the group Caches.
func (o *operator) cache(name string, kind schema.GroupVersionKind) {
	o.t.Helper()
	cache, err := informer.New(informer.Config[*unstructured.Unstructured]{
		Name: name, Logger: o.config.Logger, Metrics: o.controller.Metrics,
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](o.cluster, kube.Selection{Kind: kind}),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.config.Runnables = append(o.config.Runnables, manager.Runnable{Runner: cache, Group: manager.Caches})
	slices.SortFunc(o.config.Runnables, func(a, b manager.Runnable) int {
		return strings.Compare(a.Runner.(interface{ Name() string }).Name(), b.Runner.(interface{ Name() string }).Name())
	})
}

// start runs the manager until the end of the test.
func (o *operator) start() {
	o.t.Helper()
	ctrl, err := controller.New(o.controller)
	if err != nil {
		o.t.Fatal(err)
	}
	o.lease.Identity = o.identity
	config := o.config
	config.LeaderElection = o.lease
	config.Runnables = append(slices.Clone(config.Runnables), manager.Runnable{Runner: ctrl})
	m, err := manager.New(config)
	if err != nil {
		o.t.Fatal(err)
	}
	testrun.Start(o.t, m.Run)
	time.Sleep(10 * time.Second)
}

// another makes another process hold the lease and renew it.
func (o *operator) another(identity string) {
	o.t.Helper()
	cluster, err := kube.Connect(o.Server.Config(identity))
	if err != nil {
		o.t.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	elector, err := leader.New(leader.Config{Cluster: cluster, Namespace: "shop", Name: "website-operator", Identity: identity})
	if err != nil {
		o.t.Fatal(err)
	}
	testrun.Start(o.t, func(ctx context.Context) error {
		return elector.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	})
	time.Sleep(time.Second)
}

// forbidden is a hook that rejects the requests for paths with a part, as RBAC does.
func forbidden(part, verb, resource, group, scope, name string) apitest.Hook {
	return func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if !strings.Contains(req.URL.Path, part) {
			return do(), nil
		}
		return apitest.Failure(apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name, fmt.Errorf(
			"User %q cannot %s resource %q in API group %q %s", "system:serviceaccount:shop:website-operator", verb, resource, group, scope))), nil
	}
}

// site creates a Website, or changes its spec.
func (o *operator) site(name string, replicas int) {
	o.Edit("websites", kube.Key{Namespace: "shop", Name: name}, "kubectl-edit", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"replicas": int64(replicas)}
		return true
	})
}

// count is a Handler that writes the replicas into the status.
func (o *operator) count(ctx context.Context, site *unstructured.Unstructured) error {
	replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas")
	_, err := o.client.Resource(websites()).Namespace(site.GetNamespace()).Patch(ctx, site.GetName(), types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"ready":%d}}`, replicas), metav1.PatchOptions{}, "status")
	return err
}

// certificate makes the server use TLS, with a certificate of the given lifetime.
func (o *operator) certificate(lifetime time.Duration) {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		o.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		o.t.Fatal(err)
	}
	o.folder = o.t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(o.folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
	o.config.SetFiles(filepath.Join(o.folder, "tls.crt"), filepath.Join(o.folder, "tls.key"))
}

// get returns the body of a response.
func (o *operator) get(path string) string {
	o.t.Helper()
	synctest.Wait()
	conn, server := net.Pipe()
	defer func() { _ = conn.Close() }()
	o.listener.Deliver(pipe{server, "127.0.0.1"})
	if o.folder != "" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as curl -k
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost:8080\r\nConnection: close\r\n\r\n", path); err != nil {
		o.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.inCluster(string(body))
}

// curl returns a command and its output. Filter is empty, or a list of fields for jq: .a, .a[] or .a[0], with .b for a field of
// the elements.
func (o *operator) curl(path, filter string) string {
	o.t.Helper()
	url, flags := "localhost:8080"+path, "-s"
	if o.folder != "" {
		url, flags = "https://"+url, "-sk"
	}
	if strings.Contains(url, "?") {
		url = "'" + url + "'"
	}
	body := o.get(path)
	if filter == "" {
		return fmt.Sprintf("$ curl %s %s\n%s", flags, url, body)
	}
	var output strings.Builder
	fmt.Fprintf(&output, "$ curl %s %s | jq -rc '%s'\n", flags, url, filter)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		o.t.Fatal(err)
	}
	for part := range strings.SplitSeq(filter, ", ") {
		for _, value := range o.selected(fields, part) {
			var text string
			if json.Unmarshal(value, &text) == nil {
				fmt.Fprintln(&output, text)
				continue
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, value); err != nil {
				o.t.Fatal(err)
			}
			fmt.Fprintln(&output, compact.String())
		}
	}
	return output.String()
}

// selected returns the values of one field in a filter of jq.
func (o *operator) selected(fields map[string]json.RawMessage, part string) []json.RawMessage {
	o.t.Helper()
	parsed := regexp.MustCompile(`^\.(\w+)(\[0?\])?(?:\.(\w+))?$`).FindStringSubmatch(part)
	if parsed == nil || fields[parsed[1]] == nil {
		o.t.Fatalf("no field %q", part)
	}
	value, index, member := fields[parsed[1]], parsed[2], parsed[3]
	if index == "" {
		return []json.RawMessage{value}
	}
	var values []json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil || len(values) == 0 {
		o.t.Fatalf("field %q is empty: %v", part, err)
	}
	if index == "[0]" {
		values = values[:1]
	}
	for i := range values {
		if member == "" {
			break
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(values[i], &members); err != nil || members[member] == nil {
			o.t.Fatalf("field %q is missing: %v", part, err)
		}
		values[i] = members[member]
	}
	return values
}

// grep returns a command that selects lines of a response, and its output.
func (o *operator) grep(path, pattern string) string {
	o.t.Helper()
	command, body, _ := strings.Cut(o.curl(path, ""), "\n")
	var output strings.Builder
	fmt.Fprintf(&output, "%s | grep -E '%s'\n", command, pattern)
	for line := range strings.Lines(body) {
		if regexp.MustCompile(pattern).MatchString(line) {
			output.WriteString(line)
		}
	}
	return output.String()
}

func (o *operator) metrics(pattern string) string { return o.grep("/metrics", pattern) }

// failed returns the checks that fail.
func (o *operator) failed() string { return o.grep("/readyz", `^\[-`) }

// log returns the last log lines with a text, at most count.
func (o *operator) log(text string, count int) string {
	synctest.Wait()
	lines := slices.DeleteFunc(strings.SplitAfter(o.inCluster(o.logs.String()), "\n"), func(line string) bool {
		return !strings.Contains(line, text)
	})
	return strings.Join(lines[max(0, len(lines)-count):], "")
}

// inCluster returns a text as in a Pod, without names of this test and random numbers.
func (o *operator) inCluster(text string) string {
	if o.folder != "" {
		text = strings.ReplaceAll(text, o.folder, "/tls")
	}
	text = regexp.MustCompile(`timeoutSeconds=\d+`).ReplaceAllString(text, "timeoutSeconds=480")
	return strings.ReplaceAll(text, "http://apitest.invalid", "https://10.96.0.1:443")
}
