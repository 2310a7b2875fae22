package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

const (
	parents     = 50
	parentLabel = "evenkeel.dev/parent"
)

// Handlers create a child with a generated name if the stale cache shows none, while their objects change continuously.
// In the end each object has one child. The result without the wait for own writes is only logged, because it is
// random.
func TestContract07_OneChildEach(t *testing.T) {
	t.Parallel()
	if duplicates := createChildren(t, 10*time.Minute); duplicates > 0 { // on a busy machine watches lag longer than by default is waited
		t.Errorf("there are %d children too many", duplicates)
	}
	t.Logf("without the wait there are %d children too many", createChildren(t, -1))
}

// createChildren returns the number of surplus children at the end.
func createChildren(t *testing.T, consistencyTimeout time.Duration) (tooMany int) {
	t.Helper()
	e := newEnv(t)
	config := local.RESTConfig()
	config.Wrap((&heldWatches{resource: "/secrets", lag: 50 * time.Millisecond}).wrap)
	cluster := connect(t, config)
	own := must(kubernetes.NewForConfig(cluster.RESTConfig()))(t).CoreV1().Secrets(e.namespace)
	selection := kube.Selection{Namespaces: []string{e.namespace}, LabelSelector: parentLabel}
	children := must(informer.New(informer.Config[*corev1.Secret]{
		Name: "children", Retriever: informer.RetrieveSelected[*corev1.Secret](cluster, selection),
	}))(t)
	selection.LabelSelector = "value"
	var runs atomic.Int64
	ctrl, stop := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "parents", ResyncInterval: -1, Workers: 5, Runs: controller.RunsConfig{ConsistencyTimeout: consistencyTimeout},
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection),
		Sources:   []controller.Source{source.OwnedIn(children, source.Owner{Kind: schema.GroupKind{Kind: "ConfigMap"}})},
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			runs.Add(1)
			label := labels.Set{parentLabel: m.Name}
			n, err := children.Count(informer.Query{Namespace: m.Namespace, Labels: label.AsSelector()})
			if err != nil || n > 0 {
				return err
			}
			_, err = own.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				GenerateName: m.Name + "-", Labels: label,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: m.Name, UID: m.UID, Controller: new(true)}},
			}}, metav1.CreateOptions{})
			return err
		},
	})
	defer stop()
	e.churn(2 * time.Second)
	eventually(t, func() string {
		if queued := queued(ctrl); queued != "" || runs.Load() < parents {
			return fmt.Sprintf("%d runs, %s", runs.Load(), queued)
		}
		return ""
	})
	t.Logf("%d runs", runs.Load())
	for _, problem := range ctrl.Problems() {
		if problem.Type == controller.ProblemUnseenWrite {
			t.Errorf("problem: %v", problem)
		}
	}
	each := map[string]int{}
	for _, child := range must(e.clients.CoreV1().Secrets(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: parentLabel}))(t).Items {
		each[child.Labels[parentLabel]]++
	}
	for _, n := range each {
		tooMany += n - 1
	}
	if len(each) != parents {
		t.Errorf("%d objects have a child, want %d", len(each), parents)
	}
	return tooMany
}

// churn creates the parents, and changes them for a while.
func (e env) churn(d time.Duration) {
	e.Helper()
	for i := range parents {
		e.putConfigMap(fmt.Sprint("parent-", i), "0")
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() { // waited for below
			for end := time.Now().Add(d); time.Now().Before(end); {
				patch := fmt.Sprintf(`{"data":{"value":"%d"}}`, rand.Int64())
				name := fmt.Sprint("parent-", rand.IntN(parents))
				if _, err := e.clients.CoreV1().ConfigMaps(e.namespace).Patch(e.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					e.Errorf("change %s: %v", name, err)
					return
				}
			}
		})
	}
	writers.Wait()
}
