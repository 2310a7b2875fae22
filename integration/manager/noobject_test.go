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

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/source"
)

// team is a key of a controller without a primary kind.
type team struct{ Namespace, Name string }

// TestNoObjectInTerms checks a controller without a primary kind under a manager: each team of the ConfigMaps is handled
// once in each term of leadership, and the loss of the lease cancels a handler.
func TestNoObjectInTerms(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Connect(t, local.RESTConfig())
	c := clustertest.Client(t, cluster)
	namespace := clustertest.Namespace(t, c)
	for name, of := range map[string]string{"m1": "blue", "m2": "blue", "m3": "a/b"} {
		m := configMap(namespace, name)
		m.Data = map[string]string{"team": of}
		create(t, c, m)
	}
	maps := newInformer[*corev1.ConfigMap](t, cluster, "configmaps", informer.Selection{Namespaces: []string{namespace}})
	var mu sync.Mutex
	var runs []string // guarded by mu
	lost := make(chan error, 1)
	ctrl, err := controller.New(controller.Config[controller.NoObject]{
		Name: "teams", Logger: clustertest.Logger(t), StateDir: t.TempDir(),
		Sources: []controller.Source{source.Mapped(maps, func(m *corev1.ConfigMap) []kube.Key {
			if m.Data["team"] == "" {
				return nil // that of the cluster's certificates
			}
			return []kube.Key{controller.EncodeKey(team{m.Namespace, m.Data["team"]})}
		})},
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
		Runnables: []manager.Runnable{{Runner: maps, Group: manager.Caches}, {Runner: ctrl}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }() // received below
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
	clustertest.Eventually(t, func() string { return errorText(m.Ready()) })
	if problems := ctrl.Problems(); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
