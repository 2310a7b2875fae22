package main

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/database/api/v1"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backupService has the backups by their ids. It fails while fails is true.
type backupService struct {
	mu      sync.Mutex
	backups map[string]string
	fails   bool
}

func (s *backupService) call(_ context.Context, method, id, body string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fails:
		return errors.New("the backup service is down")
	case method == http.MethodPut:
		s.backups[id] = body
	default:
		delete(s.backups, id)
	}
	return nil
}

func (s *backupService) setFails(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// expect compares the backups, which are named by the texts in their bodies.
func (s *backupService) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, body := range s.backups {
		got = append(got, body)
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("the backups are %q, want %q", got, want)
	}
}

// fixture is a cluster with the operator, which runs.
type fixture struct {
	*simulation.Cluster
	t        *testing.T
	backups  *backupService
	registry *prometheus.Registry
	operator *evenkeel.Operator[*v1.Database]
	logs     testlog.Buffer // at debug level, in JSON
	stop     func()
}

func (f *fixture) start() {
	f.t.Helper()
	f.registry = prometheus.NewRegistry()
	cluster := f.Connect(name)
	cluster.SetLogger(slog.New(slog.NewJSONHandler(&f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var err error
	if f.operator, err = newOperator(cluster, f.registry, f.backups, 18); err != nil {
		f.t.Fatal(err)
	}
	f.stop = f.Run(f.operator)
}

func operate(t *testing.T, story func(f *fixture)) {
	t.Helper()
	config := simulation.Config{
		Manifests: []string{"api/v1/database.example.com_databases.yaml"},
		Types:     []func(*runtime.Scheme) error{v1.AddToScheme},
	}
	simulation.Test(t, config, func(t *testing.T, c *simulation.Cluster) {
		f := &fixture{Cluster: c, t: t, backups: &backupService{backups: map[string]string{}}}
		f.start()
		story(f)
	})
}

const orders = `{apiVersion: database.example.com/v1, kind: Database, metadata: {name: orders}, spec: {replicas: 2, storage: 1Gi, backup: "0 3 * * *"}}`

func (f *fixture) password() string {
	return string(simulation.Get[*corev1.Secret](f.Cluster, "default/orders").Data["password"])
}

func (f *fixture) edit(edit func(spec *v1.DatabaseSpec)) {
	simulation.Edit(f.Cluster, "default/orders", "", func(db *v1.Database) { edit(&db.Spec) })
	f.Settle()
}

func TestDatabaseIsCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.Apply(orders)
		f.Settle()
		f.Expect(`
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: orders}, spec: {replicas: 2, template: {spec: {containers: [{name: postgres, image: "postgres:18"}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: orders}, spec: {clusterIP: None, ports: [{port: 5432, targetPort: 5432, protocol: TCP}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: orders}, spec: {maxUnavailable: 1}, status: {currentHealthy: 2}}
---
{apiVersion: database.example.com/v1, kind: Database, metadata: {name: orders}, status: {readyReplicas: 2, observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`)
		f.backups.expect(f.t, "orders.default.svc 0 3 * * *")
		password := f.password()
		if len(password) < 20 {
			f.t.Errorf("the password is %q", password)
		}
		if writes := f.Record(func() { f.Advance(time.Hour) }).Writes(); len(writes) > 0 {
			f.t.Errorf("writes of the idle operator:\n%s", writes)
		}

		f.edit(func(spec *v1.DatabaseSpec) { spec.Replicas, spec.Version, spec.Backup = 3, 19, "0 4 * * *" })
		f.Expect(`
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: orders}, spec: {replicas: 3, template: {spec: {containers: [{name: postgres, image: "postgres:19"}]}}}}
---
{apiVersion: database.example.com/v1, kind: Database, metadata: {name: orders}, status: {readyReplicas: 3, observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`)
		f.backups.expect(f.t, "orders.default.svc 0 4 * * *")
		f.edit(func(spec *v1.DatabaseSpec) { spec.Backup = "" })
		f.backups.expect(f.t)
		f.edit(func(spec *v1.DatabaseSpec) { spec.Backup = "0 5 * * *" })
		f.backups.expect(f.t, "orders.default.svc 0 5 * * *")

		f.stop()
		f.start() // a restart
		f.Settle()
		if got := f.password(); got != password {
			f.t.Errorf("the password has changed from %s to %s", password, got)
		}
		if n := requests(f.t, f.registry); n < 1 {
			f.t.Errorf("%v requests to the backup service are counted", n)
		}

		f.backups.setFails(true)
		simulation.Delete[*v1.Database](f.Cluster, "default/orders")
		f.Advance(time.Minute)
		f.Expect(`{apiVersion: v1, kind: Secret, metadata: {name: orders}}`) // until the backup is deleted
		f.backups.setFails(false)
		f.Advance(time.Minute)
		f.Settle()
		simulation.ExpectGone[*v1.Database](f.Cluster, "default/orders")
		simulation.ExpectGone[*corev1.Secret](f.Cluster, "default/orders")
		f.backups.expect(f.t)

		logs := f.logs.String()
		if !strings.Contains(logs, "the backup service is down") {
			f.t.Errorf("a failure is not logged:\n%s", logs)
		}
		for _, hidden := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
			if strings.Contains(logs, hidden) {
				f.t.Errorf("the log has the password %s:\n%s", hidden, logs)
			}
		}
	})
}

// While the backup service fails, the Database is not ready, and its conditions have the reason.
func TestFailureOfBackupServiceIsInStatus(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		f.backups.setFails(true)
		f.Apply(orders)
		f.Advance(time.Minute)
		db := simulation.Get[*v1.Database](f.Cluster, "default/orders")
		if text := conditions(db); !strings.Contains(text, "Ready=False the backup service is down") {
			f.t.Errorf("the conditions are %s", text)
		}
		f.backups.setFails(false)
		f.Advance(time.Minute)
		f.Settle()
		f.Expect(`{apiVersion: database.example.com/v1, kind: Database, metadata: {name: orders}, status: {conditions: [{type: Ready, status: "True"}]}}`)
	})
}

func TestWebhooksPinVersionAndRejectChanges(t *testing.T) {
	t.Parallel()
	operate(t, func(f *fixture) {
		server, err := webhook.New(webhook.Config{Cluster: f.Connect(name), Hooks: f.operator.Hooks()})
		if err != nil {
			f.t.Fatal(err)
		}
		f.HandleWebhooks(server)
		configurations, err := server.Configurations(name, "https://database-operator.example.com", nil)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, configuration := range configurations {
			if _, err := client.Apply(f.t.Context(), f.Client(), configuration); err != nil {
				f.t.Fatal(err)
			}
		}
		f.Apply(orders)
		f.Settle()
		f.Expect(`{apiVersion: database.example.com/v1, kind: Database, metadata: {name: orders}, spec: {version: 18}}`)
		for want, change := range map[string]func(spec *v1.DatabaseSpec){
			"spec.version: Invalid value: 17: a database cannot be downgraded":        func(spec *v1.DatabaseSpec) { spec.Version = 17 },
			"spec.storage: Forbidden: the volumes of a StatefulSet cannot be changed": func(spec *v1.DatabaseSpec) { spec.Storage = resource.MustParse("2Gi") },
		} {
			before := simulation.Get[*v1.Database](f.Cluster, "default/orders")
			after := before.DeepCopy()
			change(&after.Spec)
			_, err := client.Update(f.t.Context(), f.Client(), after)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				f.t.Errorf("error %v, want %s", err, want)
			}
		}
		f.edit(func(spec *v1.DatabaseSpec) { spec.Version = 19; spec.Storage = resource.MustParse("1024Mi") })
		simulation.Delete[*v1.Database](f.Cluster, "default/orders")
		f.Settle()
		simulation.ExpectGone[*v1.Database](f.Cluster, "default/orders")
	})
}

func conditions(db *v1.Database) string {
	var text []string
	for _, c := range db.Status.Conditions {
		text = append(text, c.Type+"="+string(c.Status)+" "+c.Message)
	}
	return strings.Join(text, ", ")
}

// requests returns the value of the counter of requests to the backup service.
func requests(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "database_backup_requests_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("requests to the backup service are not counted")
	return 0
}
