package controllerruntime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// request is a request in a trace.
type request struct {
	sent     string // time, method, path, body, and the status code of the response
	response string // a hash of its body; empty for watches
}

// trace is a transport that records the requests in the order in which the server handles them, and gives all watches the
// same duration.
type trace struct {
	next     http.RoundTripper
	mu       sync.Mutex // held during a request: the server never waits
	requests []request  // guarded by mu
}

func (tr *trace) RoundTrip(req *http.Request) (*http.Response, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	req = req.Clone(req.Context())
	query := req.URL.Query()
	if query.Has("watch") {
		query.Set("timeoutSeconds", "480")
		req.URL.RawQuery = query.Encode()
	}
	var sent, received []byte
	var err error
	if req.Body != nil {
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	res, err := tr.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if !query.Has("watch") {
		if received, err = io.ReadAll(res.Body); err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(received))
	}
	tr.requests = append(tr.requests, request{
		sent:     fmt.Sprintf("%s %s %s %s %d", time.Now().UTC().Format(time.TimeOnly), req.Method, req.URL.RequestURI(), digest(sent), res.StatusCode),
		response: digest(received),
	})
	return res, nil
}

func digest(text []byte) string { return fmt.Sprintf("%.4x", sha256.Sum256(text)) }

// An operator starts a controller that keeps a Secret for each ConfigMap, with its data. The controller handles each
// ConfigMap once an hour, and after each change.
type operator func(t *testing.T, cfg *rest.Config) (stop func())

// copyToSecret is the handler of an operator, without reads from a cache.
func copyToSecret(ctx context.Context, c kubernetes.Interface, cm *corev1.ConfigMap) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}, StringData: cm.Data}
	_, err := c.CoreV1().Secrets(cm.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = c.CoreV1().Secrets(cm.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}

// runtimeOperator is an operator on controller-runtime.
func runtimeOperator(workers int) operator {
	return func(t *testing.T, cfg *rest.Config) func() {
		t.Helper()
		mgr := newManager(t, cfg, func(o *ctrl.Options) { o.Controller.MaxConcurrentReconciles = workers })
		c, secrets := mgr.GetClient(), newClient(t, cfg)
		err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcileFunc(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var cm corev1.ConfigMap
			if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			return ctrl.Result{RequeueAfter: time.Hour}, copyToSecret(ctx, secrets, &cm)
		}))
		if err != nil {
			t.Fatal(err)
		}
		return start(t, mgr)
	}
}

// cachedRuntimeOperator is an operator on controller-runtime that also watches the Secrets, and reads them from its cache.
func cachedRuntimeOperator(t *testing.T, cfg *rest.Config) func() {
	t.Helper()
	mgr := newManager(t, cfg, nil)
	c := mgr.GetClient()
	reconcile := func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		var cm corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
		_, err := controllerutil.CreateOrUpdate(ctx, c, secret, func() error {
			secret.Data = map[string][]byte{}
			for key, value := range cm.Data {
				secret.Data[key] = []byte(value)
			}
			return controllerutil.SetControllerReference(&cm, secret, mgr.GetScheme())
		})
		return ctrl.Result{RequeueAfter: time.Hour}, err
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(reconcileFunc(reconcile)); err != nil {
		t.Fatal(err)
	}
	return start(t, mgr)
}

type reconcileFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

func (f reconcileFunc) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return f(ctx, req)
}

// ownOperator is an operator on this library.
func ownOperator(workers int) operator {
	return func(t *testing.T, cfg *rest.Config) func() {
		t.Helper()
		cluster, err := kube.Connect(cfg)
		if err != nil {
			t.Fatal(err)
		}
		secrets := newClient(t, cfg)
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "operator", Logger: slog.New(slog.DiscardHandler), Workers: workers, ResyncInterval: -1,
			Retriever: informer.Retrieve[*corev1.ConfigMap](cluster),
			Handler: func(ctx context.Context, cm *corev1.ConfigMap) error {
				if err := copyToSecret(ctx, secrets, cm); err != nil {
					return err
				}
				return controller.RequeueAfter(time.Hour)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ctrl.Run(ctx) }() // the returned function waits for it
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

// scenario runs an operator for two virtual hours, with changes of another client, and returns the operator's requests. No
// two changes are made at one time. existing is true if the objects exist before the operator starts.
func scenario(t *testing.T, run operator, existing bool) (requests []request) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newClient(t, s.RESTConfig("tests"))
		cfg := s.RESTConfig("operator")
		recorded := &trace{next: cfg.Transport}
		cfg.Transport = recorded
		if existing {
			createConfigMaps(t.Context(), t, c, 20)
		}
		stop := run(t, cfg)
		if !existing {
			time.Sleep(time.Second)
			createConfigMaps(t.Context(), t, c, 20)
		}
		for round := range 3 {
			time.Sleep(30 * time.Minute)
			for i := range 10 {
				name := fmt.Sprintf("cm-%03d", (i+7*round)%20)
				cm, err := c.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				cm.Data = map[string]string{"round": fmt.Sprint(round)}
				if _, err := c.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		time.Sleep(30 * time.Minute)
		stop()
		requests = recorded.requests
	})
	return requests
}

// A level is what is equal in the traces of all runs.
type level int

const (
	sameRequests  level = iota // times, methods, paths, bodies and status codes
	sameResponses              // and the responses, which contain resource versions
	sameOrder                  // and the order of requests at one time
)

func (l level) String() string {
	return [...]string{"the requests", "the requests and responses", "the requests and responses in their order"}[l]
}

// hash returns a hash of the part of a trace that l compares.
func (l level) hash(requests []request) string {
	lines := make([]string, len(requests))
	for i, r := range requests {
		lines[i] = r.sent
		if l > sameRequests {
			lines[i] += " " + r.response
		}
	}
	if l < sameOrder {
		slices.Sort(lines)
	}
	return digest([]byte(strings.Join(lines, "\n")))
}

// One scenario has the same trace of requests in all runs. Three things are needed besides virtual time and a server whose
// uids, versions and watches do not vary:
//
//   - A fixed duration of watches. All clients choose it at random; trace replaces it. Otherwise no two traces are equal.
//   - One cause at a time. controller-runtime adds its handlers to a running informer, which sends them the existing objects
//     in the order of a map: no two traces are equal if objects exist at the start. This library handles them in the order of
//     the list, so that its traces are equal with one worker.
//   - One actor at a time. With several workers, the order is that of goroutines as soon as two objects are due at one time.
//     Two informers make requests of one time in random order.
//
// controller-runtime's resync, every nine to eleven hours, is random too. The scenario is shorter.
func TestTracesAreReproducible(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run      operator
		existing bool
		want     level
	}{
		"controller-runtime":                              {runtimeOperator(1), false, sameOrder},
		"controller-runtime, 4 workers":                   {runtimeOperator(4), false, sameOrder},
		"controller-runtime, 2 informers":                 {cachedRuntimeOperator, false, sameResponses},
		"controller-runtime, existing objects":            {runtimeOperator(1), true, sameRequests},
		"controller-runtime, 4 workers, existing objects": {runtimeOperator(4), true, sameRequests},
		"this library":                                    {ownOperator(1), false, sameOrder},
		"this library, 3 workers":                         {ownOperator(3), false, sameOrder},
		"this library, existing objects":                  {ownOperator(1), true, sameOrder},
		"this library, 3 workers, existing objects":       {ownOperator(3), true, sameRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := testlength.Count(4, 100)
			first := scenario(t, test.run, test.existing)
			if len(first) < 50 {
				t.Fatalf("only %d requests", len(first))
			}
			equal := map[level]int{sameRequests: 1, sameResponses: 1, sameOrder: 1}
			for range runs - 1 {
				requests := scenario(t, test.run, test.existing)
				for l := range equal {
					if l.hash(requests) == l.hash(first) {
						equal[l]++
					} else if l == test.want {
						t.Log(difference(first, requests))
					}
				}
			}
			for l := sameRequests; l <= sameOrder; l++ {
				t.Logf("%v are equal in %d of %d runs", l, equal[l], runs)
			}
			if equal[test.want] != runs {
				t.Errorf("%v are equal in %d runs only", test.want, equal[test.want])
			}
		})
	}
}

// difference returns the first requests that differ.
func difference(a, b []request) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("request %d:\n%v\n%v", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d requests, then %d", len(a), len(b))
}
