package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/source/poll"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// A program sets its logger once, at the connection: no part writes to slog's default logger then. The test is not
// parallel, because it replaces that logger.
func TestLoggerOfClusterReachesEveryPart(t *testing.T) { //nolint:paralleltest // see above
	var logs, defaults testlog.Buffer
	before := slog.Default()
	slog.SetDefault(defaults.Logger(nil))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Leases())
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			resp := do()
			if req.Method == http.MethodPost {
				resp.Header.Add("Warning", `299 - "this is deprecated"`)
			}
			return resp, nil
		})
		server.Edit("configmaps", kube.Key{Namespace: "shop", Name: "web"}, "jane", func(map[string]any) bool { return true })
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		cluster.SetLogger(logs.Logger(nil))
		logger := cluster.Logger()
		if cluster.SetLogger(nil); cluster.Logger() != slog.Default() || logger == slog.Default() {
			t.Error("SetLogger does not set the logger")
		}
		cluster.SetLogger(logger)
		runLoggedParts(t, cluster)
	})
	for part, line := range map[string]string{
		"controller":                        `msg="handler failed, will try again" controller=maps`,
		"LoggerFrom in a handler":           `msg="in a handler" controller=maps`,
		"client":                            `warning="this is deprecated"`,
		"Cluster":                           `msg="a handler wrote with a context that is not its run's"`,
		"controller with a shared informer": `msg="controller started" controller=shared`,
		"controller with a Retriever":       `msg="controller started" controller=retrieved`,
		"controller with its own Retriever": `msg="controller started" controller=own`,
		"controller without objects":        `msg="controller started" controller=tenants`,
		"poll":                              `msg="a source cannot poll, will try again" controller=tenants`,
		"informer":                          `informer=secrets`,
		"informer of children with a Retriever of its own": `informer=children`,
		"Events":                   `msg="failed to send event"`,
		"leader election":          `msg="leadership gained"`,
		"webhook server":           `hook=maps.example.com`,
		"LoggerFrom in a webhook":  `msg="in a webhook"`,
		"manager":                  `msg="runnable started" runnable=maps`,
		"LoggerFrom in a Runnable": `msg="in a runnable" runnable=plain`,
	} {
		if logs.Count(line) == 0 {
			t.Errorf("%s: the log lacks %s", part, line)
		}
	}
	if unwanted := defaults.String(); unwanted != "" {
		t.Errorf("to the default logger was written:\n%s", unwanted)
	}
	if t.Failed() {
		t.Logf("the log:\n%s", logs.String())
	}
}

// runLoggedParts runs every part of a program that logs for some minutes.
func runLoggedParts(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	c := must(client.New(client.Config{Cluster: cluster}))(t)
	handler := func(ctx context.Context, obj *corev1.ConfigMap) error {
		controller.LoggerFrom(ctx).InfoContext(ctx, "in a handler")
		if obj.Name != "web" { // a copy
			return nil
		}
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, GenerateName: "copy-"}}
		if _, err := client.Create(context.WithoutCancel(t.Context()), c, copied); err != nil { //nolint:contextcheck // a mistake that is logged
			return err
		}
		return errors.New("not ready")
	}
	ignore := func(context.Context, *corev1.ConfigMap) error { return nil }
	shared := must(informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)}))(t)
	secrets := must(informer.New(informer.Config[*corev1.Secret]{
		Name: "secrets", Optional: true, Retriever: informer.Retrieve[*corev1.Secret](cluster), // which the cluster does not serve
	}))(t)
	down := kindserver.New[*corev1.Secret](apiserver.Secrets(), true)
	down.Fail("list", errors.New("no connection"))
	down.Fail("watch", errors.New("no connection"))
	children := must(watched.New(watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: "operator"},
		Kinds: []watched.Kind{watched.Of(func(config *informer.Config[*corev1.Secret]) {
			config.Name, config.Retriever = "children", described{down}
		})},
	}))(t)
	events := must(event.New(event.Config{Cluster: cluster, Controller: "operator"}))(t)
	runnables := []manager.Runnable{{Runner: secrets}, {Name: "events", Runner: events}, {Name: "plain", Runner: manager.RunFunc(
		func(ctx context.Context) error {
			controller.LoggerFrom(ctx).InfoContext(ctx, "in a runnable")
			<-ctx.Done()
			return nil
		})}}
	for _, config := range []controller.Config[*corev1.ConfigMap]{
		{Name: "maps", Cluster: cluster, Handler: handler, Events: events},
		{Name: "shared", Informer: shared, Handler: ignore},
		{Name: "parents", Cluster: cluster, Handler: ignore, Sources: children.Sources},
		{Name: "retrieved", Handler: ignore, Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"shop"}})},
		{
			Name: "own", Handler: ignore, Cluster: cluster, Retriever: kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true),
		},
	} {
		runnables = append(runnables, manager.Runnable{Runner: must(controller.New(config))(t)})
	}
	runnables = append(runnables, manager.Runnable{Runner: must(controller.New(controller.Config[controller.NoObject]{
		Name: "tenants", Cluster: cluster, Reconciler: func(context.Context, kube.Key) error { return nil },
		Sources: []controller.Source{poll.New(poll.Config{
			Name: "billing", Poller: poll.List(func(context.Context) ([]poll.Item, error) { return nil, errors.New("billing is down") }),
		})},
	}))(t)})
	m := must(manager.New(manager.Config{
		LeaderElection: &leader.Config{Cluster: cluster, Namespace: "shop", Name: "operator", Identity: "me"},
		Runnables:      runnables, IgnoreSignals: true,
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- m.Run(ctx) }() // waited for below
	events.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}, "Normal", "Tested", "Test", "")
	time.Sleep(2 * time.Minute)
	reviewOnce(t, cluster)
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// described is a Retriever of the program that knows the kind of its objects.
type described struct {
	informer.Retriever[*corev1.Secret]
}

func (d described) Describe() informer.Description[*corev1.Secret] {
	description := d.Retriever.Describe()
	description.GroupVersionKind = corev1.SchemeGroupVersion.WithKind("Secret")
	return description
}

// reviewOnce sends a review to a webhook whose function fails.
func reviewOnce(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	hook := webhook.Validating(webhook.HookConfig{Name: "maps.example.com", Operations: []admissionv1.Operation{admissionv1.Create}, Resources: []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}}}, func(ctx context.Context, _ *webhook.Request[*corev1.ConfigMap]) error {
		controller.LoggerFrom(ctx).InfoContext(ctx, "in a webhook")
		panic("broken")
	})
	server := must(webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{hook}}))(t)
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"kind":{"version":"v1","kind":"ConfigMap"},"resource":{"version":"v1","resource":"configmaps"},` +
		`"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"shop"}}}}`
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/maps.example.com", strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	server.ServeHTTP(httptest.NewRecorder(), request)
}

// must returns the value of a call without an error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
