package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/database/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/webhook"
)

const name = "database-operator"

// operator has what the handler and the webhooks need.
type operator struct {
	backups  backups
	requests prometheus.Counter // to the backup service
	version  int32              // of Databases without one
}

func newOperator(cluster *kube.Cluster, metrics prometheus.Registerer, backups backups, version int32) (
	*evenkeel.Operator[*v1.Database], error,
) {
	o := &operator{backups: backups, version: version, requests: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "database_backup_requests_total", Help: "Requests to the backup service.",
	})}
	if err := metrics.Register(o.requests); err != nil {
		return nil, err
	}
	// region operator
	return evenkeel.New(evenkeel.Config[*v1.Database]{
		Name: name, Cluster: cluster, Handle: o.handle,
		Owns: []watched.Kind{
			watched.Of[*corev1.Secret](), watched.Of[*corev1.Service](), watched.Of[*appsv1.StatefulSet](),
			watched.Of[*policyv1.PodDisruptionBudget](),
		},
		Status: func(db *v1.Database) (*[]metav1.Condition, *int64) {
			return &db.Status.Conditions, &db.Status.ObservedGeneration
		},
		Finalizer: "database.example.com/backup", Teardown: o.deleteBackup,
		Default: o.setVersion, Validate: validate,
	})
	// endregion
}

// region handle

// handle brings the children and the backup of db to their desired state.
func (o *operator) handle(ctx context.Context, db *v1.Database, run *evenkeel.Run) error {
	version := cmp.Or(db.Spec.Version, o.version) // webhooks may be off
	report, err := run.Apply(ctx, password(db), service(db), statefulSet(db, version), disruptionBudget(db))
	if set, ok := owned.Object[*appsv1.StatefulSet](report, kube.KeyOf(db)); ok {
		db.Status.ReadyReplicas = set.Status.ReadyReplicas
	}
	if err != nil {
		return err
	}
	return o.backup(ctx, db, run)
}

// endregion

// backup saves db by the schedule in its spec. The status has the id before the backup exists, so that a crash cannot
// leave a backup that nothing deletes.
func (o *operator) backup(ctx context.Context, db *v1.Database, run *evenkeel.Run) error {
	if db.Spec.Backup == "" {
		return o.deleteBackup(ctx, db, run)
	}
	if db.Status.Backup == "" {
		db.Status.Backup = string(db.UID)
		if err := run.CommitStatus(ctx); err != nil {
			return fmt.Errorf("write the id of the backup to the status: %w", err)
		}
	}
	o.requests.Inc()
	address := db.Name + "." + db.Namespace + ".svc"
	return o.backups.call(ctx, http.MethodPut, db.Status.Backup, address+" "+db.Spec.Backup)
}

// deleteBackup deletes the backup that may exist.
func (o *operator) deleteBackup(ctx context.Context, db *v1.Database, _ *evenkeel.Run) error {
	if db.Status.Backup == "" {
		return nil
	}
	o.requests.Inc()
	if err := o.backups.call(ctx, http.MethodDelete, db.Status.Backup, ""); err != nil {
		return err
	}
	db.Status.Backup = ""
	return nil
}

// setVersion pins the version of a new Database, so that another default does not upgrade it.
func (o *operator) setVersion(_ context.Context, request *webhook.Request[*v1.Database]) error {
	spec := &request.Object.Spec
	spec.Version = cmp.Or(spec.Version, o.version)
	return nil
}

// validate rejects changes that the StatefulSet or the data do not permit.
func validate(_ context.Context, request *webhook.Request[*v1.Database]) error {
	if request.Old == nil {
		return nil
	}
	var errs field.ErrorList
	spec, old, path := request.Object.Spec, request.Old.Spec, field.NewPath("spec")
	if spec.Version < old.Version {
		errs = append(errs, field.Invalid(path.Child("version"), spec.Version, "a database cannot be downgraded"))
	}
	if spec.Storage.Cmp(old.Storage) != 0 {
		errs = append(errs, field.Forbidden(path.Child("storage"), "the volumes of a StatefulSet cannot be changed"))
	}
	return errs.ToAggregate()
}

// backups is the backup service: PUT creates or changes a backup, DELETE deletes it. Calls may be repeated.
type backups interface {
	call(ctx context.Context, method, id, body string) error
}

// httpBackups is the URL of a backup service.
type httpBackups string

func (b httpBackups) call(ctx context.Context, method, id, body string) error {
	request, err := http.NewRequestWithContext(ctx, method, string(b)+"/"+id, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("backup %s: %w", id, err)
	}
	response, err := http.DefaultClient.Do(request) // until ctx ends
	if err != nil {
		return fmt.Errorf("backup %s: %w", id, err)
	}
	defer response.Body.Close()
	if code := response.StatusCode; code/100 != 2 && (method != http.MethodDelete || code != http.StatusNotFound) {
		return fmt.Errorf("backup %s: %s returned %s", id, method, response.Status)
	}
	return nil
}
