package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// warningsOf collects the warnings of the requests of a client.
type warningsOf struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

func (w *warningsOf) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// The API server calls a mutating and a validating hook for each operation, and clients get their decisions.
func TestSmokeAdmission(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var mu sync.Mutex
	var asked []string // guarded by mu
	mutate := func(_ context.Context, r *mapRequest) error {
		if r.Object == nil || r.Object.Data["defaulted"] != "" {
			return nil
		}
		return r.Patch(client.Operation{Op: "add", Path: "/data/defaulted", Value: "yes"})
	}
	validate := func(_ context.Context, r *mapRequest) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprintf("%s dryRun=%t object=%t old=%t", r.Admission.Operation, r.DryRun(), r.Object != nil, r.Old != nil))
		if r.Object == nil {
			if r.Old.Data["keep"] != "" {
				return errors.New("keep is set")
			}
			return nil
		}
		if r.Object.Data["defaulted"] == "" {
			return errors.New("the mutating hook was not called before")
		}
		r.Warn("a is %s", r.Object.Data["a"])
		if r.Object.Data["a"] == "bad" {
			return field.ErrorList{field.Invalid(field.NewPath("data").Key("a"), "bad", "must not be bad")}.ToAggregate()
		}
		return nil
	}
	e.serve(webhook.Mutating(e.options("defaults"), probe("m", mutate)), webhook.Validating(e.options("values"), probe("v", validate)))
	e.awaitHooks("m", "v")
	warnings := &warningsOf{}
	config := rest.CopyConfig(local.RESTConfig())
	config.WarningHandler = warnings
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := clients.CoreV1().ConfigMaps(e.namespace)

	created, err := maps.Create(t.Context(), e.configMap("one"), metav1.CreateOptions{})
	if err != nil || created.Data["defaulted"] != "yes" {
		t.Fatal(created, err)
	}
	bad := e.configMap("two")
	bad.Data["a"] = "bad"
	_, err = maps.Create(t.Context(), bad, metav1.CreateOptions{})
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity || !apierrors.IsInvalid(err) ||
		err.Error() != `admission webhook "values.example.com" denied the request: ConfigMap "two" is invalid: data[a]: Invalid value: "bad": must not be bad` {
		t.Error(err)
	}
	if causes := retryrules.Fields(err); len(causes) != 1 || causes[0] != "data[a]" {
		t.Errorf("the causes are %v", causes)
	}
	created.Data["keep"], created.Data["a"] = "yes", "2"
	if _, err = maps.Update(t.Context(), created, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	if _, err = maps.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if err = maps.Delete(t.Context(), "one", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "denied the request: keep is set") {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"CREATE dryRun=false object=true old=false", "CREATE dryRun=false object=true old=false", "UPDATE dryRun=true object=true old=true",
		"UPDATE dryRun=false object=true old=true", "DELETE dryRun=false object=false old=true",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("the hook was asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
	if got := strings.Join(warnings.text, ", "); got != "a is 1, a is bad, a is 2, a is 2" {
		t.Errorf("the warnings are %s", got)
	}
}

// Requests without a decision, with both failure policies.
func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(context.Context, *mapRequest) error{
		"panic":    func(context.Context, *mapRequest) error { panic("oops") },
		"failure":  func(context.Context, *mapRequest) error { return webhook.Failure(errors.New("oops")) },
		"time-out": func(ctx context.Context, _ *mapRequest) error { <-ctx.Done(); return errors.New("oops") },
		"stopped":  nil,
	} {
		for _, ignore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ignore=%t", name, ignore), func(t *testing.T) {
				t.Parallel()
				e := newEnv(t)
				options := e.options("failing")
				options.Ignore = ignore
				if name == "time-out" {
					options.Timeout = 5 * time.Second
				}
				inner := f
				if inner == nil {
					inner = func(context.Context, *mapRequest) error { return nil }
				}
				_, stop := e.serve(webhook.Validating(options, probe("f", inner)))
				e.awaitHooks("f")
				want := "oops"
				if f == nil {
					stop()
					want = "connection refused"
				}
				began := time.Now()
				_, err := client.Create(t.Context(), e.client, e.configMap("one"))
				if ignore && err != nil {
					t.Error(err)
				}
				if !ignore && (!apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "failing.example.com"`) || !strings.Contains(err.Error(), want)) {
					t.Error(err)
				}
				t.Logf("%s: %v", time.Since(began).Round(time.Millisecond), err)
			})
		}
	}
}

// A renewed certificate of the same authority fails no request.
func TestRenewedCertificates(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var mu sync.Mutex
	calls := 0 // guarded by mu
	hook := webhook.Validating(e.options("counted"), probe("c", func(context.Context, *mapRequest) error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return nil
	}))
	e.serve(hook)
	e.awaitHooks("c")
	create := func() error {
		_, err := client.Create(t.Context(), e.client, e.configMap("one"), client.DryRun())
		return err
	}
	const requests = 300
	for i := range requests {
		if i%100 == 50 {
			e.renew(e.authority)
		}
		if err := create(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if calls != requests {
		t.Errorf("the hook was called %d times, want %d", calls, requests)
	}
}

// With a bundle of another authority the API server rejects each request, until the server has a certificate of it.
func TestReplacedAuthority(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	hook := webhook.Validating(e.options("replaced"), probe("r", func(context.Context, *mapRequest) error { return nil }))
	url, _ := e.serve(hook)
	e.awaitHooks("r")
	server, err := webhook.New(webhook.Config{Cluster: e.cluster, Hooks: []webhook.Hook{hook}})
	if err != nil {
		t.Fatal(err)
	}
	other := e.newAuthority()
	for _, obj := range configurations(e, server, e.namespace, url, other.Cert) {
		if _, err := client.Apply(t.Context(), e.client, obj); err != nil {
			t.Fatal(err)
		}
	}
	create := func() error {
		_, err := client.Create(t.Context(), e.client, e.configMap("one"), client.DryRun())
		return err
	}
	clustertest.Eventually(t, func() string {
		if err := create(); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
			return fmt.Sprint("the API server trusts the server: ", err)
		}
		return ""
	})
	e.renew(other)
	clustertest.Eventually(t, func() string { return clustertest.Text(create()) })
}

// An object of the largest size that etcd accepts, and two of them in an update.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.serve(webhook.Mutating(e.options("large"), probe("l", func(_ context.Context, r *mapRequest) error {
		r.Object.Data["size"] = fmt.Sprint(len(r.Admission.Object.Raw))
		return nil
	})))
	e.awaitHooks("l")
	large := e.configMap("large")
	large.BinaryData = map[string][]byte{"x": []byte(strings.Repeat("\x00<", 1000*1000/2))}
	large.Annotations = map[string]string{"x": strings.Repeat("\\<", 250*1000/2)}
	created, err := client.Create(t.Context(), e.client, large)
	if err != nil {
		t.Fatal(err)
	}
	created.Data["a"] = "2"
	updated, err := client.Update(t.Context(), e.client, created)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the object of the review has %s bytes", updated.Data["size"])
}

// The first 20 calls wait for each other, so that they are in progress at the same time.
func TestParallelRequests(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const together = 20
	var calls atomic.Int32
	arrived := make(chan struct{})
	e.serve(webhook.Mutating(e.options("parallel"), probe("p", func(ctx context.Context, r *mapRequest) error {
		if calls.Add(1) == together {
			close(arrived)
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.Object.Labels = map[string]string{"name": r.Object.Name}
		return nil
	})))
	e.awaitHooks("p")
	var requests sync.WaitGroup
	for i := range 100 {
		requests.Go(func() { // waited for below
			name := fmt.Sprintf("map-%03d", i)
			created, err := client.Create(t.Context(), e.client, e.configMap(name))
			if err != nil || created.Labels["name"] != name {
				t.Error(err)
			}
		})
	}
	requests.Wait()
}

// Another client's change of a configuration is taken back when it is applied again.
func TestConfigurationsAreApplied(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	hooks := []webhook.Hook{
		webhook.Mutating(e.options("one"), func(context.Context, *mapRequest) error { return nil }),
		webhook.Validating(e.options("two"), func(context.Context, *mapRequest) error { return nil }),
	}
	server, err := webhook.New(webhook.Config{Cluster: e.cluster, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://127.0.0.1:1"
	e.register(server, url, e.authority.Cert)
	var versions []string
	for range 2 {
		for _, obj := range configurations(e, server, e.namespace, url, e.authority.Cert) {
			applied, err := client.Apply(t.Context(), e.client, obj)
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, applied.Object.GetResourceVersion())
		}
	}
	if !slices.Equal(versions[:2], versions[2:]) {
		t.Errorf("a second apply changes the configurations: versions %v", versions)
	}
}
