package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

// team is a key of a controller without a primary kind.
type team struct{ Namespace, Name string }

// TestNoObjectInTerms checks a controller without a primary kind under a manager: each team of the ConfigMaps is handled
// once in each term of leadership and after a restart by the manager, and the loss of the lease cancels a handler. The
// objects are those of an informer, or of a SharedInformer of client-go.
func TestNoObjectInTerms(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"informer": false, "shared informer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNoObjectInTerms(t, shared)
		})
	}
}

func testNoObjectInTerms(t *testing.T, shared bool) {
	t.Helper()
	cluster := clustertest.Connect(t, local.RESTConfig())
	c := clustertest.Client(t, cluster)
	namespace := clustertest.Namespace(t, c)
	for name, teamName := range map[string]string{"m1": "blue", "m2": "blue", "m3": "a/b"} {
		m := configMap(namespace, name)
		m.Data = map[string]string{"team": teamName}
		create(t, c, m)
	}
	teams := func(m *corev1.ConfigMap) []kube.Key {
		if m.Data["team"] == "" {
			return nil // that of the cluster's certificates
		}
		return []kube.Key{controller.EncodeKey(team{m.Namespace, m.Data["team"]})}
	}
	// A note is not a change for the teams.
	changesTeam := predicate.Func(func(before, after *corev1.ConfigMap) bool {
		return before == nil || after == nil || before.Data["team"] != after.Data["team"]
	})
	maps, objects := mapsOf(t, cluster, namespace, shared, teams, changesTeam)
	failing := failingSource{starts: make(chan struct{}, 2), fails: make(chan error)}
	failing.starts <- struct{}{} // of the first term
	failing.starts <- struct{}{} // of the second term
	var mu sync.Mutex
	var runs []string // guarded by mu
	lost := make(chan error, 1)
	ctrl, err := controller.New(controller.Config[controller.NoObject]{
		Name: "teams", Logger: clustertest.Logger(t), Runs: controller.RunsConfig{StateDir: t.TempDir()},
		Sources: []controller.Source{objects, failing},
		Reconciler: controller.KeyHandler(func(ctx context.Context, key team) error {
			mu.Lock()
			runs = append(runs, strings.TrimPrefix(key.Namespace, namespace)+key.Name)
			first := len(runs) == 1
			mu.Unlock()
			if !first {
				return nil
			}
			<-ctx.Done()
			lost <- context.Cause(ctx)
			return ctx.Err()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Config{
		IgnoreSignals: true, Logger: clustertest.Logger(t),
		LeaderElection: &leader.Config{
			Cluster: cluster, Namespace: namespace, Name: "operator",
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 250 * time.Millisecond,
		},
		Runnables: []manager.Runnable{{Name: "maps", Runner: maps, Group: manager.Caches}, {Runner: ctrl, OnFailure: manager.Restart}},
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	handled := func(want ...string) {
		t.Helper()
		clustertest.Eventually(t, func() string {
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Sorted(slices.Values(runs)); !slices.Equal(got, want) {
				return "handled " + strings.Join(got, ", ")
			}
			return ""
		})
	}
	handled("a/b", "blue")
	before := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "operator"}}
	stolen := before.DeepCopy()
	stolen.Spec.HolderIdentity, stolen.Spec.RenewTime = new("thief"), new(metav1.NowMicro())
	if _, err := client.Patch(t.Context(), c, before, client.MergeFrom(before, stolen)); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; !errors.Is(err, kube.ErrLeadershipLost) {
		t.Errorf("the handler was cancelled because of %v", err)
	}
	handled("a/b", "a/b", "blue", "blue")
	// A source fails, and objects change before the controller that the manager starts again calls a handler.
	failing.fails <- errors.New("the source is broken")
	patch := func(name, data string) {
		t.Helper()
		if _, err := client.Patch(t.Context(), c, configMap(namespace, name), client.RawPatch(types.MergePatchType, []byte(`{"data":`+data+`}`))); err != nil {
			t.Fatal(err)
		}
	}
	patch("m1", `{"team":"red"}`)
	patch("m2", `{"note":"x"}`)
	failing.starts <- struct{}{}
	handled("a/b", "a/b", "a/b", "blue", "blue", "blue", "red")
	clustertest.Eventually(t, func() string { return errorText(m.Ready()) })
	patch("m2", `{"note":"y"}`)
	patch("m1", `{"team":"green"}`)
	handled("a/b", "a/b", "a/b", "blue", "blue", "blue", "green", "red", "red")
	if problems := ctrl.Problems(); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

// failingSource is a source that waits for a start, and fails with each error.
type failingSource struct {
	starts chan struct{}
	fails  chan error
}

func (s failingSource) Prepare(controller.Target) (controller.PreparedSource, error) {
	return controller.PreparedSource{Name: "failing", Start: func(ctx context.Context, _ controller.Enqueue) (run func() error, err error) {
		select {
		case <-s.starts:
		case <-ctx.Done():
		}
		return func() error {
			select {
			case err := <-s.fails:
				return err
			case <-ctx.Done():
				return nil
			}
		}, nil
	}}, nil
}

// mapsOf returns an informer of ConfigMaps, and a source with the keys of their teams.
func mapsOf(t *testing.T, cluster *kube.Cluster, namespace string, shared bool, teams func(*corev1.ConfigMap) []kube.Key, predicate informer.Predicate) (manager.Runner, controller.Source) {
	t.Helper()
	if !shared {
		maps := newInformer[*corev1.ConfigMap](t, cluster, "configmaps", kube.Selection{Namespaces: []string{namespace}})
		return maps, source.Mapped(maps, teams, predicate)
	}
	core, err := kubernetes.NewForConfig(local.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	maps := informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer()
	runner := manager.RunFunc(func(ctx context.Context) error {
		maps.RunWithContext(ctx)
		return nil
	})
	return runner, source.Shared("teams", maps, teams, predicate)
}
