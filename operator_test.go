package evenkeel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/webhook"
)

var _ manager.Component = (*Operator[*corev1.Service])(nil)

const teardownOf = "example.com/teardown"

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// fixture is an operator of Services with a ConfigMap each.
type fixture struct {
	*testing.T
	server *apitest.Server
	config Config[*corev1.Service]
	client *client.Client // the user's
	fails  atomic.Pointer[error]
}

// operate runs test in a bubble with a fixture whose config it may change.
func operate(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apitest.WithStatus(
			apiserver.Builtin[corev1.Service](corev1.SchemeGroupVersion.WithKind("Service"), "services", corev1.AddToScheme)))
		cluster, _ := apitest.Connect(server.Config("operator"))
		user, _ := apitest.Connect(server.Config("user"))
		c, err := client.New(client.Config{Cluster: user, FieldOwner: "user"})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{T: t, server: server, client: c}
		f.config = Config[*corev1.Service]{
			Name: "web-operator", Cluster: cluster,
			Handle: func(ctx context.Context, service *corev1.Service, run *Run) error {
				_, err := run.Apply(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: service.Name}, Data: map[string]string{"type": string(service.Spec.Type)},
				})
				if failure := f.fails.Load(); err == nil && failure != nil {
					err = *failure
				}
				return err
			},
			Owns:   []watched.Kind{watched.Of[*corev1.ConfigMap]()},
			Status: func(service *corev1.Service) (*[]metav1.Condition, *int64) { return &service.Status.Conditions, nil },
		}
		test(f)
	})
}

// start creates the Service web, and runs the operator.
func (f *fixture) start() (op *Operator[*corev1.Service], stop func()) {
	f.Helper()
	if _, err := client.Create(f.Context(), f.client, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}); err != nil {
		f.Fatal(err)
	}
	op, err := New(f.config)
	if err != nil {
		f.Fatal(err)
	}
	stop = testrun.Start(f.T, op.Run)
	wait(time.Minute)
	return op, stop
}

// wait waits for d, and until everything in the bubble waits: variables of handlers may be read then.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) web() *corev1.Service {
	f.Helper()
	service, err := client.Get[*corev1.Service](f.Context(), f.client, webKey())
	if err != nil {
		f.Fatal(err)
	}
	return service
}

// conditions formats the conditions of the Service web.
func (f *fixture) conditions() string {
	f.Helper()
	var lines []string
	for _, c := range f.web().Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func TestHandlerAppliesChildrenAndStatus(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.start()
		child := f.server.Object("configmaps", webKey())
		if child == nil || child.GetManagedFields()[0].Manager != "web-operator" || !metav1.IsControlledBy(child, f.web()) {
			f.Fatalf("the child is %v", child)
		}
		if got, want := f.conditions(), "Ready=True"; got != want {
			f.Errorf("the conditions are %s, want %s", got, want)
		}
		if _, err := client.Apply(f.Context(), f.client, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Data: map[string]string{"type": "mine"},
		}, client.Force()); err != nil {
			f.Fatal(err)
		}
		wait(time.Second)
		if data := f.server.Object("configmaps", webKey()).Object["data"]; fmt.Sprint(data) != "map[type:]" {
			f.Errorf("the child is not applied again after a change of another client: %v", data)
		}
		f.server.Requests()
		wait(time.Hour)
		if requests := slices.DeleteFunc(f.server.Requests(), func(r string) bool { return strings.Contains(r, "watch") }); len(requests) > 0 {
			f.Errorf("requests of the idle operator: %q", requests)
		}
	})
}

// With Config.Client.ReadOwnWrites, a handler reads the children that it has just applied and pruned.
func TestHandlerReadsItsChildrenAtOnce(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.config.Client.ReadOwnWrites = true
		var got []string
		f.config.Handle = func(ctx context.Context, service *corev1.Service, run *Run) error {
			f.server.HoldWatches("configmaps")
			time.AfterFunc(100*time.Millisecond, func() { f.server.ReleaseWatches("configmaps") })
			var children []kube.Object
			for name := range strings.FieldsSeq(service.Annotations["children"]) {
				children = append(children, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			if _, err := run.Apply(ctx, children...); err != nil {
				return err
			}
			keys, err := client.Keys[*corev1.ConfigMap](ctx, run.Client, kube.Selection{
				Namespaces: []string{"shop"}, LabelSelector: owned.LabelSet + "=web-operator",
			})
			if err != nil {
				return err
			}
			var names []string
			for key := range keys {
				names = append(names, key.Name)
			}
			slices.Sort(names)
			if want := strings.Fields(service.Annotations["children"]); !slices.Equal(names, want) {
				f.Errorf("the handler reads %q, want %q", names, want)
			}
			got = append(got, strings.Join(names, " "))
			return nil
		}
		f.start()
		lists := f.server.Count("list")
		for _, children := range []string{"a b", "b c", "", "a"} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"children":%q}}}`, children))
			if _, err := client.Patch(f.Context(), f.client, f.web(), patch); err != nil {
				f.Fatal(err)
			}
			wait(time.Second)
		}
		if want := []string{"", "a b", "b c", "", "a"}; !slices.Equal(slices.Compact(got), want) {
			f.Errorf("the runs read %q, want %q", got, want)
		}
		if more := f.server.Count("list") - lists; more > 0 {
			f.Errorf("the runs made %d lists", more)
		}
	})
}

// A failure after the children are ready must not leave Ready true: the handler had more to do.
func TestFailureAfterReadyChildrenIsInStatus(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errors.New("the record is taken"), controller.Terminal(errors.New("the record is taken"))} {
		operate(t, func(f *fixture) {
			f.fails.Store(&failure)
			f.start()
			want := "Ready=False Reconciling=True"
			if controller.OutcomeOf(failure) == controller.OutcomeTerminal {
				want = "Ready=False Stalled=True"
			}
			if got := f.conditions(); got != want {
				f.Errorf("%v: the conditions are %s, want %s", failure, got, want)
			}
		})
	}
}

// What CommitStatus writes during the run must not say that the object is ready.
func TestCommitStatusDoesNotTellReadyBeforeTheEnd(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		apply, during := f.config.Handle, ""
		f.config.Handle = func(ctx context.Context, service *corev1.Service, run *Run) error {
			if err := apply(ctx, service, run); err != nil || during != "" {
				return err
			}
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "web.example.com"}}
			if err := run.CommitStatus(ctx); err != nil {
				return err
			}
			during = f.conditions() + " " + f.web().Status.LoadBalancer.Ingress[0].Hostname //nolint:contextcheck // of the user
			return nil
		}
		f.start()
		if want := " web.example.com"; during != want {
			f.Errorf("during the run the status is %q, want %q", during, want)
		}
		if got, want := f.conditions(), "Ready=True"; got != want {
			f.Errorf("the conditions are %s, want %s", got, want)
		}
	})
}

func TestTeardownRunsBeforeObjectIsGone(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		var torn []string
		f.config.Finalizer = teardownOf
		f.config.Teardown = func(ctx context.Context, service *corev1.Service, run *Run) error {
			report, err := run.Children.Delete(ctx, service)
			torn = append(torn, fmt.Sprint(service.Name, report.Remaining() == ""))
			if err == nil && report.Remaining() != "" {
				err = controller.RequeueAfter(time.Second, "the children are being deleted")
			}
			return err
		}
		f.start()
		service := f.web()
		if !slices.Contains(service.Finalizers, teardownOf) {
			f.Fatalf("the finalizers are %q", service.Finalizers)
		}
		if err := client.Delete(f.Context(), f.client, service); err != nil {
			f.Fatal(err)
		}
		wait(time.Minute)
		if left := f.server.Keys("services"); len(left) > 0 || len(torn) == 0 || torn[len(torn)-1] != "webtrue" {
			f.Errorf("the Services %q are left after the teardowns %q", left, torn)
		}
	})
}

// Each of these parts is the user's: the operator adds its own.
func TestFurtherSettingsReachParts(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		logs := &testlog.Buffer{}
		f.config.Cluster.SetLogger(logs.Logger(nil))
		if err := f.config.Cluster.SetNamespaces("shop"); err != nil {
			f.Fatal(err)
		}
		others, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](f.config.Cluster),
		})
		if err != nil {
			f.Fatal(err)
		}
		f.config.Controller.Reads = []informer.Any{others}
		f.config.Controller.Workers = 7
		f.config.Children = owned.Config{Name: "web-set"}
		f.config.Client.Informers = []client.Informer{others}
		f.config.Validate = func(context.Context, *webhook.Request[*corev1.Service]) error { return nil }
		op, stop := f.start()
		stop()
		if label := f.server.Object("configmaps", webKey()).GetLabels()[owned.LabelSet]; label != "web-set" {
			f.Errorf("the child has the label %q", label)
		}
		if logs.Count("webhooks are not served") != 1 || logs.Count("workers=7") == 0 {
			f.Errorf("the log is:\n%s", logs)
		}
		if hooks := op.Hooks(); len(hooks) != 1 {
			f.Errorf("the webhooks are %v", hooks)
		}
		if op.Name() != "web-operator" || op.client.Config().FieldOwner != "web-operator" {
			f.Errorf("the operator is %s, with a client of %s", op.Name(), op.client.Config().FieldOwner)
		}
	})
}

func TestCallsWithoutTheirConfigFail(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.config.Owns, f.config.Status = nil, nil
		var errs []error
		f.config.Handle = func(ctx context.Context, _ *corev1.Service, run *Run) error {
			_, err := run.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
			errs = append(errs, err, run.CommitStatus(ctx))
			return nil
		}
		f.start()
		if len(errs) < 2 {
			f.Fatal(errs)
		}
		errtest.Expect(f.T, errs[0], "set Config.Owns")
		errtest.Expect(f.T, errs[1], "set Config.Status")
	})
}

func TestChildOfOtherKindIsErrorAboutOwns(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		var err atomic.Pointer[error]
		f.config.Handle = func(ctx context.Context, _ *corev1.Service, run *Run) error {
			_, applyErr := run.Apply(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
			err.Store(&applyErr)
			return nil
		}
		f.start()
		errtest.Expect(f.T, *err.Load(), "its kind is not in Config.Kinds, so it would not be found again: add /v1, Kind=Service, for an operator to its Owns")
	})
}

func TestNewReportsAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := New(Config[*corev1.Service]{})
	errtest.Expect(t, err, `new operator ""`, "Name is required", "Cluster is required", "Handle is required")
	cluster, _ := apitest.Connect(apitest.New(apiserver.ConfigMaps()).Config("operator"))
	config := Config[*corev1.Service]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, *corev1.Service, *Run) error { return nil },
	}
	wrong := config
	wrong.Finalizer = teardownOf
	wrong.Children.Name = "set"
	wrong.Client.Cluster = cluster
	wrong.Controller = controller.Config[*corev1.Service]{
		Name: "other", Cluster: cluster, Handler: func(context.Context, *corev1.Service) error { return nil },
		Retriever: informer.Retrieve[*corev1.Service](cluster),
	}
	_, err = New(wrong)
	errtest.Expect(t, err, `new operator "web"`, "one of Finalizer and Teardown is set",
		"Controller.Name is set", "Controller.Cluster is set", "Controller.Handler is set", "Client.Cluster is set",
		"Children is set without Owns")
	wrong = config
	wrong.Finalizer, wrong.Teardown = "no domain", config.Handle
	_, err = New(wrong)
	errtest.Expect(t, err, `the name "no domain" is not valid`)
	wrong = config
	wrong.Controller.Workers = -1
	_, err = New(wrong)
	errtest.Expect(t, err, "Workers is -1")
	_, err = New(Config[controller.NoObject]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, controller.NoObject, *Run) error { return nil },
	})
	errtest.Expect(t, err, "use controller.New")
	_, err = New(Config[*metav1.PartialObjectMetadata]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, *metav1.PartialObjectMetadata, *Run) error { return nil },
		Status: func(*metav1.PartialObjectMetadata) (*[]metav1.Condition, *int64) { return nil, nil },
	})
	errtest.Expect(t, err, "Status is set, and objects with only metadata have none")
	_, err = New(Config[*unstructured.Unstructured]{
		Name: "web", Cluster: cluster, Handle: func(context.Context, *unstructured.Unstructured, *Run) error { return nil },
		Validate: func(context.Context, *webhook.Request[*unstructured.Unstructured]) error { return nil },
	})
	errtest.Expect(t, err, "Default and Validate need a Go type of the kind")
	if _, err := New(config); err != nil {
		t.Error(err)
	}
}

// Not only children decide about the conditions: what the handler waits for outside of the cluster does too, and a
// success without children ends an earlier failure.
func TestConditionsFollowTheLastRun(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		failure := errors.New("the record is taken")
		f.fails.Store(&failure)
		f.config.Owns = nil
		var created atomic.Bool
		waits := readiness.State{Status: readiness.InProgress, Message: "the database is being created"}
		f.config.Handle = func(_ context.Context, _ *corev1.Service, run *Run) error {
			if failure := f.fails.Load(); failure != nil {
				return *failure
			}
			if !created.Load() {
				run.States = append(run.States, waits)
				return controller.RequeueAfter(10*time.Minute, "poll the database")
			}
			return nil
		}
		f.start()
		f.expectConditions("Ready=False Reconciling=True", "the record is taken")
		f.fails.Store(nil)
		wait(time.Hour)
		f.expectConditions("Ready=False Reconciling=True", "the database is being created")
		created.Store(true)
		wait(time.Hour)
		f.expectConditions("Ready=True", "")
	})
}

func (f *fixture) expectConditions(want, message string) {
	f.Helper()
	ready := apimeta.FindStatusCondition(f.web().Status.Conditions, "Ready")
	if got := f.conditions(); got != want || !strings.Contains(ready.Message, message) {
		f.Errorf("the conditions are %s: %+v, want %s: %s", got, ready, want, message)
	}
}

// A run that the shutdown interrupts does not tell that the object is ready: it may have had more to do.
func TestInterruptedRunDoesNotTellReady(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.config.Controller.Runs.DrainTimeout = time.Second
		apply := f.config.Handle
		f.config.Handle = func(ctx context.Context, service *corev1.Service, run *Run) error {
			if err := apply(ctx, service, run); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		_, stop := f.start()
		stop()
		if got := f.conditions(); got != "" {
			f.Errorf("the conditions are %s", got)
		}
	})
}

// A handler needs no second way to apply children that have settings of their own, and to report their state.
func TestApplyRespectsSettingsOfChild(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		var runs atomic.Int32
		f.config.Handle = func(ctx context.Context, _ *corev1.Service, run *Run) error {
			data := map[string]string{"run": strconv.Itoa(int(runs.Add(1)))}
			config := func(name string) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
			}
			waits := func(kube.Object) readiness.State { return readiness.State{Status: readiness.InProgress} }
			_, err := run.Apply(ctx, owned.Child{Object: config("once"), CreateOnly: true}, config("each"),
				&owned.Child{Object: config("first"), Wave: 1, Ready: waits}, owned.Child{Object: config("late"), Wave: 2})
			return err
		}
		f.start()
		service := f.web()
		service.Spec.Type = corev1.ServiceTypeNodePort
		if _, err := client.Update(f.Context(), f.client, service); err != nil {
			f.Fatal(err)
		}
		time.Sleep(time.Minute)
		runOf := func(name string) string {
			child, err := client.Get[*corev1.ConfigMap](f.Context(), f.client, kube.Key{Namespace: "shop", Name: name})
			if err != nil {
				return err.Error()
			}
			return child.Data["run"]
		}
		if runs.Load() < 2 || runOf("once") != "1" || runOf("each") == "1" || runOf("first") == "1" {
			f.Errorf("%d runs, the children are of run %s, %s and %s", runs.Load(), runOf("once"), runOf("each"), runOf("first"))
		}
		if got := runOf("late"); !strings.Contains(got, "not found") {
			f.Errorf("the child of wave 2 is of run %s while that of wave 1 is not ready", got)
		}
		if got := f.conditions(); !strings.Contains(got, "Ready=False") {
			f.Errorf("the conditions are %s", got)
		}
	})
}

func TestMistakesInChildrenAreErrors(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		var err atomic.Pointer[error]
		f.config.Handle = func(ctx context.Context, _ *corev1.Service, run *Run) error {
			_, applyErr := run.Apply(ctx, nil, owned.Child{}, (*owned.Child)(nil), owned.Child{Object: owned.Child{}}, &owned.Child{Object: &owned.Child{}})
			err.Store(&applyErr)
			return nil
		}
		f.start()
		if err.Load() == nil {
			f.Fatal("the handler did not return")
		}
		for i, want := range []string{"is nil", "is nil", "is nil", "is a Child", "is a Child"} {
			errtest.Expect(f.T, *err.Load(), fmt.Sprintf("child %d: Object %s", i, want))
		}
	})
}

func TestSecondApplyOfRunFails(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		apply := f.config.Handle
		var second error
		f.config.Handle = func(ctx context.Context, service *corev1.Service, run *Run) error {
			if err := apply(ctx, service, run); err != nil {
				return err
			}
			second = apply(ctx, service, run)
			return nil
		}
		f.start()
		errtest.Expect(f.T, second, "this run has applied children already")
	})
}

func TestStatusOfCopyIsReported(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		logs := &testlog.Buffer{}
		f.config.Cluster.SetLogger(logs.Logger(nil))
		f.config.Status = func(service *corev1.Service) (*[]metav1.Condition, *int64) {
			return &service.DeepCopy().Status.Conditions, nil
		}
		f.start()
		if logs.Count("return pointers into the object") == 0 {
			f.Errorf("the log is:\n%s", logs)
		}
	})
}

// Validate must not keep the finalizers of an object from being removed, and its rule follows the Cluster's namespaces.
func TestValidateAndNamespaces(t *testing.T) {
	t.Parallel()
	calls := 0
	config := Config[*corev1.Service]{Validate: func(context.Context, *webhook.Request[*corev1.Service]) error {
		calls++
		return errors.New("no")
	}}
	for want, namespaces := range map[string][]string{"": nil, "&": {"shop", "sea"}, "*": {kube.AllNamespaces}} {
		cluster, _ := apitest.Connect(apitest.New(apiserver.ConfigMaps()).Config("operator"))
		if err := cluster.SetNamespaces(namespaces...); err != nil {
			t.Fatal(err)
		}
		server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: config.hooks()})
		if err != nil {
			t.Fatal(err)
		}
		configurations, err := server.Configurations("web", "https://web:9443", nil)
		if err != nil {
			t.Fatal(err)
		}
		registered := fmt.Sprint(configurations[0].(*unstructured.Unstructured).Object["webhooks"])
		if hasSelector := strings.Contains(registered, "namespaceSelector:map[matchExpressions:"); hasSelector != (want == "&") {
			t.Errorf("%q: registered is %s", namespaces, registered)
		}
		for _, deleted := range []string{"", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`} {
			calls = 0
			review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"UPDATE",` +
				`"kind":{"version":"v1","kind":"Service"},"resource":{"version":"v1","resource":"services"},` +
				`"object":{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"` + deleted + `}}}}`
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validating.services.core", strings.NewReader(review))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			server.ServeHTTP(recorder, request)
			if allowed := strings.Contains(recorder.Body.String(), `"allowed":true`); allowed != (deleted != "") || calls > 1 {
				t.Errorf("deleted %q: %s", deleted, recorder.Body)
			}
		}
	}
}

// A cluster-scoped owner has children in every namespace.
func TestClusterScopedOwnerHasChildrenInNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apitest.Nodes())
		cluster, _ := apitest.Connect(server.Config("operator"))
		c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "user"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "web"}}); err != nil {
			t.Fatal(err)
		}
		op, err := New(Config[*corev1.Node]{
			Name: "nodes", Cluster: cluster, Owns: []watched.Kind{watched.Of[*corev1.ConfigMap]()},
			Handle: func(ctx context.Context, node *corev1.Node, run *Run) error {
				_, err := run.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: node.Name}})
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, op.Run)
		wait(time.Minute)
		if keys := server.Keys("configmaps"); len(keys) != 1 {
			t.Errorf("the children are %q", keys)
		}
	})
}

// Operators have the defaults of their Cluster.
func TestOperatorHasDefaultsOfCluster(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		handled := map[string]time.Duration{} // the time that Handle has; read after stop
		f.config.Handle = func(ctx context.Context, service *corev1.Service, _ *Run) error {
			deadline, _ := ctx.Deadline()
			handled[service.Name] = time.Until(deadline)
			return nil
		}
		err := errors.Join(
			controller.SetDefaults(f.config.Cluster, controller.Config[controller.NoObject]{Workers: 1, Timeout: time.Minute}),
			informer.SetDefaults(informer.Config[*corev1.Service]{
				Retriever: informer.RetrieveSelected[*corev1.Service](f.config.Cluster, kube.Selection{LabelSelector: "app=web"}),
			}),
		)
		if err != nil {
			f.Fatal(err)
		}
		selected := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "selected", Labels: map[string]string{"app": "web"}}}
		if _, err := client.Create(f.Context(), f.client, selected); err != nil {
			f.Fatal(err)
		}
		_, stop := f.start() // it creates the Service web
		stop()
		if len(handled) != 1 || handled["selected"] != time.Minute {
			f.Errorf("handled within: %v", handled)
		}
		err = controller.SetDefaults(f.config.Cluster, controller.Config[*corev1.Service]{Workers: 1})
		errtest.Expect(f.T, err, "some were created already")
	})
}
