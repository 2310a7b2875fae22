package evenkeel

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// kubeconfigFile returns the path of a kubeconfig for a server that does not exist.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	const content = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
contexts: [{name: c, context: {cluster: c, namespace: shop}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitStatusAndMessageOfProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		run    func(ctx context.Context, p *Program) error
		status int
		want   string
	}{
		"success":       {run: func(context.Context, *Program) error { return nil }},
		"error":         {run: func(context.Context, *Program) error { return errors.New("no records") }, status: 1, want: "web: no records\n"},
		"help":          {args: []string{"--help"}, run: connects},
		"mistake":       {args: []string{"--lease-duration=x"}, run: connects, status: 1, want: "web: invalid value \"x\" for flag -lease-duration: parse error\n"},
		"no connection": {run: func(ctx context.Context, p *Program) error { return p.Run(ctx) }, status: 1, want: "web: run the program: call Connect first\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, usage bytes.Buffer
			status := exitStatus("web", test.args, &out, func(ctx context.Context, p *Program) error {
				p.Flags.SetOutput(&usage)
				return test.run(ctx, p)
			})
			if has := strings.Contains(usage.String(), "web manifests --help"); has != (name == "help") {
				t.Errorf("the usage is %q", &usage)
			}
			if status != test.status || out.String() != test.want {
				t.Errorf("status %d, output %q, want %d, %q", status, &out, test.status, test.want)
			}
		})
	}
}

func connects(_ context.Context, p *Program) error {
	_, err := p.Connect()
	return err
}

func TestProgramHasFlagsOfItsParts(t *testing.T) {
	t.Parallel()
	p := NewProgram("web", "--kubeconfig", kubeconfigFile(t), "--records=here", "--webhook-listen=127.0.0.1:0", "--leader-elect=false")
	records := p.Flags.String("records", "", "")
	cluster, err := p.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if *records != "here" || p.Webhooks.Listen != "127.0.0.1:0" || p.Options.LeaderElect || p.Options.LeaseName != "web" {
		t.Errorf("the records are %s, the webhooks listen on %s, the options are %+v", *records, p.Webhooks.Listen, p.Options)
	}
	if cluster.RESTConfig().Host != "https://127.0.0.1:1" || p.Events() == nil {
		t.Errorf("connected to %s", cluster.RESTConfig().Host)
	}
	_, err = p.Connect()
	errtest.Expect(t, err, "the program is connected already")
	p.Flags.VisitAll(func(f *flag.Flag) {
		if f.Usage == "" && f.Name != "records" {
			t.Errorf("flag %s has no usage", f.Name)
		}
	})
}

// A program that has webhooks says so when it does not serve them.
func TestWebhooksWithoutAddressAreReported(t *testing.T) {
	t.Parallel()
	p := NewProgram("web", "--kubeconfig", kubeconfigFile(t))
	cluster, err := p.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.SetDefaults(cluster, controller.Config[controller.NoObject]{Workers: 1}); err != nil {
		t.Errorf("Connect has created controllers: %v", err)
	}
	logs := &testlog.Buffer{}
	cluster.SetLogger(logs.Logger(nil))
	op, err := New(Config[*corev1.Service]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.Service, *Run) error { return nil },
		Validate: func(context.Context, *webhook.Request[*corev1.Service]) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	op.serveIn(p)
	runnables, err := p.webhooks()
	if err != nil || len(runnables) > 0 || len(p.caches) > 0 || logs.Count("webhooks are not served") != 1 {
		t.Errorf("the server is %v, with the caches %v, %v; the log is:\n%s", runnables, p.caches, err, logs)
	}
	p.Webhooks.Listen = "127.0.0.1:0"
	op.serveIn(p)
	p.Webhooks.Hooks = op.Hooks()
	p.Manager.TLS = func(c *tls.Config) { c.NextProtos = []string{"h2"} }
	if _, err = p.webhooks(); err == nil || !strings.Contains(err.Error(), "HTTP/1.1 only") {
		t.Errorf("the settings of the manager's server are not those of the webhooks: %v", err)
	}
	p.Webhooks.TLS = func(*tls.Config) {}
	if runnables, err = p.webhooks(); err != nil || len(runnables) != 1 || len(p.caches) != 1 {
		t.Errorf("the server is %v, with the caches %v, %v", runnables, p.caches, err)
	}
}

// Mistakes of the program, the manager and the webhooks are errors.
func TestRunReportsMistakes(t *testing.T) {
	t.Parallel()
	connected := func() *Program {
		p := NewProgram("web", "--kubeconfig", kubeconfigFile(t), "--listen=127.0.0.1:0")
		if err := connects(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := connected()
	p.Webhooks.Listen = "127.0.0.1:0"
	p.Serve(webhook.Hook{})
	errtest.Expect(t, p.Run(t.Context()), "Hooks[0] is empty")
	p = connected()
	p.Webhooks.Hooks = []webhook.Hook{{}}
	errtest.Expect(t, p.Run(t.Context()), "no webhook was passed to Serve")
	p = connected()
	p.Install(crd.Definitions{})
	p.Install(crd.Definitions{})
	errtest.Expect(t, p.Run(t.Context()), "Install was called twice")
	errtest.Expect(t, p.Run(t.Context()), "create another Program for another Run")
	p = connected()
	p.Install(nil)
	errtest.Expect(t, p.Run(t.Context()), "Install was called without definitions")
	ofProcess, err := certificates.OfProcess("web")
	if err != nil {
		t.Fatal(err)
	}
	own := func(settings *tls.Config) { settings.Certificates = []tls.Certificate{ofProcess} }
	p = connected()
	p.Webhooks.Listen, p.Webhooks.TLS, p.webhookURL = "127.0.0.1:0", own, "https://web:9443"
	p.Serve(webhook.Validating[*corev1.Service](webhook.HookConfig{}, nil))
	errtest.Expect(t, p.Run(t.Context()), "--webhook-url is set, and the program has a certificate in Webhooks")
	p = connected()
	p.Webhooks.Listen, p.Webhooks.TLS = "127.0.0.1:0", own
	p.Serve(webhook.Validating(webhook.HookConfig{}, func(context.Context, *webhook.Request[*corev1.Service]) error {
		return nil
	}))
	if _, err := p.server(); err != nil {
		t.Errorf("with a certificate in TLS: %v", err)
	}
	p = connected()
	p.Flags.Bool("late", false, "")
	errtest.Expect(t, p.Run(t.Context()), "the flags --late were added after Connect")
	p = NewProgram("Web")
	errtest.Expect(t, connects(t.Context(), p), `the name of the program is "Web"`)
	p = NewProgram("web", "--kubeconfig=missing")
	errtest.Expect(t, connects(t.Context(), p), "stat missing")
	errtest.Expect(t, connects(t.Context(), p), "create another Program")
	p = connected()
	errtest.Expect(t, p.Run(t.Context(), nil), "Runner")
	p = connected()
	p.Manager.Handlers = map[string]http.Handler{"GET /livez": http.NotFoundHandler()}
	errtest.Expect(t, p.Run(t.Context()), `Handlers["GET /livez"]`)
	if _, ok := p.Manager.Handlers[metricsPattern]; ok {
		t.Error("Run changes the config of the caller")
	}
}

// The own metrics of a program are served wherever they are registered, and only with an HTTP server.
func TestMetricsOfProgram(t *testing.T) {
	t.Parallel()
	other := prometheus.NewRegistry()
	for listen, registerer := range map[string]prometheus.Registerer{"127.0.0.1:0": other, "": nil} {
		p := NewProgram("web", "--kubeconfig", kubeconfigFile(t), "--listen="+listen)
		if registerer != nil {
			p.Metrics.Registerer = registerer
		}
		if err := connects(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Metrics.Registerer.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "orders_total"}))
		var config manager.Config
		p.serveMetrics(&config)
		handler := config.Handlers[metricsPattern]
		if (handler != nil) != (listen != "") {
			t.Fatalf("listen on %q: the handler is %v", listen, handler)
		}
		if handler == nil {
			continue
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		for _, want := range []string{"orders_total", "go_goroutines"} {
			if !strings.Contains(recorder.Body.String(), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	}
	config := manager.Config{Listen: ":0", Handlers: map[string]http.Handler{"/metrics": http.NotFoundHandler()}}
	NewProgram("web").serveMetrics(&config)
	if len(config.Handlers) != 1 {
		t.Error("the program's own handler is hidden")
	}
}
