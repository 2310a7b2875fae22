package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/status"
)

// Two versions of the operator lead in turn, as in a rolling update that is taken back and repeated. Each brings the
// children to its own desired state once, with one write for each difference, and the standby writes nothing: neither
// children, fields and their owners nor conditions alternate within a term.
func TestRollingUpdateChangesChildrenOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, (*world).updateInTurn)
}

// nextConfig returns the config of the next version of the operator: it has one child more, a changed one, one without a
// label, and a condition.
func nextConfig(cluster *kube.Cluster, records Records) evenkeel.Config[*v1.WebApp] {
	config, o := Config(cluster, records), &operator{records}
	config.Handle = func(ctx context.Context, app *v1.WebApp, run *evenkeel.Run) error {
		status.Set(&app.Status.Conditions, status.True(conditionNext, app.Generation, "Scanned", "no vulnerabilities were found"))
		setSuspended(app)
		changed, unlabeled := deployment(app), service(app)
		changed.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "VERSION", Value: "next"}}
		delete(unlabeled.Labels, "app.kubernetes.io/name")
		added := &corev1.ConfigMap{ObjectMeta: meta(app, app.Name+"-next"), Data: map[string]string{"version": "next"}}
		if _, err := run.Apply(ctx, configMap(app), changed, unlabeled, added); err != nil {
			return err
		}
		return o.record(ctx, app, run)
	}
	return config
}

// conditionNext is a condition that only the next version sets.
const conditionNext = "Scanned"

func (w *world) updateInTurn() {
	w.Helper()
	apps := []string{"shop", "store"}
	leads := w.lead(Config)
	for _, name := range apps {
		w.create(w.app(name))
		w.untilReady(name)
	}
	// By kind and name, of both versions. The first one is complete after its first term.
	versions := [2]map[string]childState{}
	w.until("the first version has finished", func() error { return w.finished(apps, false) })
	versions[0] = w.childStates()
	created := w.transitions(apps)
	const turns = 3
	for turn := 1; turn <= turns; turn++ {
		next := turn%2 == 1
		version := Config
		if next {
			version = nextConfig
		}
		standby := w.lead(version)
		standby.untilStandby()
		leads.stop()
		w.until("the other version has finished", func() error { return w.finished(apps, next) })
		got := w.childStates()
		if versions[turn%2] == nil {
			versions[turn%2] = got
		}
		if diff := cmp.Diff(versions[turn%2], got); diff != "" {
			w.Errorf("turn %d: the children differ from those in an earlier term of the version (-want +got):\n%s", turn, diff)
		}
		if turn == 1 {
			maps.Copy(created, w.transitions(apps)) // the condition of the next version
		}
		for key, before := range created {
			if after := w.transitions(apps)[key]; after != before {
				w.Errorf("turn %d: condition %s has changed at %s, want %s", turn, key, after, before)
			}
		}
		leads = standby
	}
	leads.stop()
}

// childState is what an operator decides about a child.
type childState struct {
	Labels   map[string]string
	Managers []string // with their operations, subresources and fields
}

func (w *world) childStates() map[string]childState {
	w.Helper()
	states := map[string]childState{}
	for name, child := range w.children() {
		state := childState{Labels: child.GetLabels()}
		for _, m := range child.GetManagedFields() {
			line := fmt.Sprintf("%s %s %s", m.Manager, m.Operation, m.Subresource)
			if m.Manager == Name {
				line += " " + m.FieldsV1.GetRawString()
			}
			state.Managers = append(state.Managers, line)
		}
		slices.Sort(state.Managers)
		states[name] = state
	}
	return states
}

// transitions returns when the conditions that do not depend on the version have changed, by WebApp and type.
func (w *world) transitions(apps []string) map[string]string {
	w.Helper()
	times := map[string]string{}
	for _, name := range apps {
		app, err := w.get(name)
		if err != nil {
			w.Fatal(err)
		}
		for _, kind := range []string{v1.ConditionSuspended, conditionNext} {
			if condition := apimeta.FindStatusCondition(app.Status.Conditions, kind); condition != nil {
				times[name+" "+kind] = fmt.Sprint(condition.Status, condition.LastTransitionTime.UTC())
			}
		}
	}
	return times
}

// finished returns an error unless the WebApps are ready, with the children of a version.
func (w *world) finished(apps []string, next bool) error {
	all := w.children()
	for _, name := range apps {
		app, err := w.get(name)
		if err != nil {
			return err
		}
		deployment, _ := all["Deployment "+name].(*appsv1.Deployment)
		if deployment == nil || len(deployment.Spec.Template.Spec.Containers[0].Env) > 0 != next || (all["ConfigMap "+name+"-next"] != nil) != next {
			return fmt.Errorf("the children of %s are of the other version", name)
		}
		if !apimeta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionReady) || deployment.Status.ObservedGeneration != deployment.Generation ||
			deployment.Status.UpdatedReplicas != 1 || deployment.Status.Replicas != 1 || deployment.Status.ReadyReplicas != 1 {
			return fmt.Errorf("WebApp %s: %+v, Deployment: %+v", name, app.Status, deployment.Status)
		}
	}
	return nil
}

// replica is a process with a version of the operator, which competes for the lease of the namespace.
type replica struct {
	*testing.T
	manager *manager.Manager
	stop    func()

	mu     sync.Mutex
	writes map[string][]string // guarded by mu; by path: the resource versions after writes, each once, and deletions
	states map[string][]string // guarded by mu; by path and type: the statuses of conditions after writes, each change once
}

// lead starts a replica.
func (w *world) lead(version func(*kube.Cluster, Records) evenkeel.Config[*v1.WebApp]) *replica {
	w.Helper()
	r := &replica{T: w.T, writes: map[string][]string{}, states: map[string][]string{}}
	config := asOperator(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return replicaTransport{r, next} })
	var clusters [2]*kube.Cluster
	for i, config := range []*rest.Config{config, w.config} {
		var err error
		if clusters[i], err = kube.Connect(config, v1.AddToScheme); err != nil {
			w.Fatal(err)
		}
		clusters[i].SetLogger(slog.New(slog.DiscardHandler))
		if err := clusters[i].SetNamespaces(w.namespace); err != nil {
			w.Fatal(err)
		}
	}
	ctrl, err := evenkeel.New(version(clusters[0], w.records))
	if err != nil {
		w.Fatal(err)
	}
	r.manager, err = manager.New(manager.Config{
		// The lease is not in the namespace for which config/manifests.yaml permits it.
		LeaderElection: &leader.Config{Cluster: clusters[1], Namespace: w.namespace, Name: Name},
		IgnoreSignals:  true,
		Runnables:      []manager.Runnable{{Runner: ctrl}},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.manager.Run(ctx) }() // waited for by stop
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run the manager: %v", err)
		}
		for _, cluster := range clusters {
			cluster.HTTPClient().CloseIdleConnections()
		}
		r.check()
	})
	w.Cleanup(r.stop)
	return r
}

// untilStandby waits until the replica waits for the lease of another one.
func (r *replica) untilStandby() {
	r.Helper()
	clustertest.Eventually(r.T, "the replica is a standby", func(context.Context) (bool, string) {
		at := r.manager.Leadership()
		return at.Standby && at.Leader != "" && r.manager.Ready() == nil, fmt.Sprint(at)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.writes) > 0 {
		r.Errorf("the standby has written %v", r.writes)
	}
}

// check checks what a replica has written in its term: each child at most once, and no condition back and forth.
func (r *replica) check() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, versions := range r.writes {
		if !strings.Contains(path, "/webapps/") && len(versions) > 1 {
			r.Errorf("%s was changed %d times in one term", path, len(versions))
		}
	}
	for condition, states := range r.states {
		if len(states) > 2 { // for example False and True, while the Deployment replaces its Pods
			r.Errorf("%s alternates in one term: %v", condition, states)
		}
	}
}

// replicaTransport records the writes of a replica.
type replicaTransport struct {
	replica *replica
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (tt replicaTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := tt.next.RoundTrip(req)
	if err != nil || req.Method == http.MethodGet {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	r, path := tt.replica, req.URL.Path
	object, version := &metav1.PartialObjectMetadata{}, "deleted"
	if req.Method != http.MethodDelete {
		if err := errors.Join(err, json.Unmarshal(body, object)); err != nil {
			r.Errorf("%s %s: %v, the response is %s", req.Method, path, err, body)
		}
		version = object.ResourceVersion
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes[path] = appendNew(r.writes[path], version)
	if strings.HasSuffix(path, "/status") {
		app := &v1.WebApp{}
		if err := json.Unmarshal(body, app); err != nil {
			r.Errorf("%s %s: %v", req.Method, path, err)
		}
		for _, kind := range []string{v1.ConditionReady, v1.ConditionSuspended, conditionNext} {
			state, key := "", path+" "+kind
			if condition := apimeta.FindStatusCondition(app.Status.Conditions, kind); condition != nil {
				state = string(condition.Status)
			}
			r.states[key] = appendNew(r.states[key], state)
		}
	}
	return response, nil
}

// appendNew appends a value unless it is the last one.
func appendNew(values []string, value string) []string {
	if n := len(values); n > 0 && values[n-1] == value {
		return values
	}
	return append(values, value)
}
