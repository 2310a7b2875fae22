package watched_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/source"
)

// A controller of a Cluster starts while an optional kind, its own or that of its children, cannot be read, and handles
// the kind when it can be.
func TestOptionalKindsStartWithoutTheirObjects(t *testing.T) {
	t.Parallel()
	for reason, code := range map[string]int{
		"Forbidden": http.StatusForbidden, "ServiceUnavailable": http.StatusServiceUnavailable, "NotFound": http.StatusNotFound,
	} {
		for _, refused := range []string{"configmaps", "secrets"} {
			for name, children := range map[string]func(*testing.T, *kube.Cluster) []controller.Source{
				"children": watchedSecrets, "owner references": ownedSecrets,
			} {
				t.Run(reason+" "+refused+" with "+name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { testOptional(t, reason, code, refused, children) })
				})
			}
		}
	}
}

func watchedSecrets(t *testing.T, cluster *kube.Cluster) []controller.Source {
	t.Helper()
	children, err := watched.New(watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: "webapp"},
		Kinds:  []watched.Kind{watched.Of(func(c *informer.Config[*corev1.Secret]) { c.Optional = true })},
	})
	if err != nil {
		t.Fatal(err)
	}
	return children.Sources
}

func ownedSecrets(t *testing.T, cluster *kube.Cluster) []controller.Source {
	t.Helper()
	secrets, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](cluster), Optional: true})
	if err != nil {
		t.Fatal(err)
	}
	return []controller.Source{source.OwnedIn(secrets, source.Owner{})}
}

func testOptional(
	t *testing.T, reason string, code int, refused string, children func(*testing.T, *kube.Cluster) []controller.Source,
) {
	t.Helper()
	server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets())
	owner := kube.Key{Namespace: "shop", Name: "web"}
	server.Edit("configmaps", owner, "jane", func(map[string]any) bool { return true })
	var refuses atomic.Bool
	refuses.Store(true)
	server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if !refuses.Load() || !strings.HasSuffix(req.URL.Path, "/"+refused) {
			return do(), nil
		}
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused","reason":"` + reason + `"}`
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	})
	cluster, err := kube.Connect(server.Config("operator"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	var runs atomic.Int64
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "webapp", Cluster: cluster, Optional: true, Sources: children(t, cluster),
		Handler: func(context.Context, *corev1.ConfigMap) error {
			runs.Add(1)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, ctrl.Run)
	time.Sleep(time.Minute)
	if n := runs.Swap(0); n > 0 != (refused == "secrets") {
		t.Errorf("%d runs while %s cannot be read", n, refused)
	}
	if problems, err := ctrl.Problems(), ctrl.Ready(); err != nil || len(problems) != 1 || problems[0].Type != controller.ProblemInformer {
		t.Errorf("while %s cannot be read: Ready %v, problems %v", refused, err, problems)
	}

	refuses.Store(false)
	time.Sleep(time.Minute)
	if n := runs.Swap(0); n > 0 != (refused == "configmaps") {
		t.Errorf("%d runs when %s can be read", n, refused)
	}
	if problems, err := ctrl.Problems(), ctrl.Ready(); err != nil || len(problems) > 0 {
		t.Errorf("when %s can be read: Ready %v, problems %v", refused, err, problems)
	}
	// The informer of the children shows a new child, whose owner runs.
	parent := server.Object("configmaps", owner)
	server.Edit("secrets", owner, "jane", func(obj map[string]any) bool {
		metadata := obj["metadata"].(map[string]any)
		metadata["ownerReferences"] = []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": owner.Name, "uid": string(parent.GetUID()), "controller": true,
		}}
		metadata["labels"] = map[string]any{
			"evenkeel.dev/set": "webapp", "evenkeel.dev/owner-uid": string(parent.GetUID()),
		}
		metadata["annotations"] = map[string]any{"evenkeel.dev/owner": owner.String(), "evenkeel.dev/owner-kind": "ConfigMap"}
		return true
	})
	time.Sleep(time.Second)
	if runs.Load() != 1 {
		t.Errorf("%d runs after a child was created, want one", runs.Load())
	}
}
