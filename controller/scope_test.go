package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// TestContract02_ClusterScopedOwnerIsEnqueued checks that a source that assumes the namespace of the child loses no
// wake-up of a cluster-scoped owner.
func TestContract02_ClusterScopedOwnerIsEnqueued(t *testing.T) {
	for _, reconciler := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
			server := apitest.New(
				apitest.ClusterScoped(apiserver.Custom(gv.WithKind("Zone"), "zones")),
				apiserver.Custom(gv.WithKind("Part"), "parts"),
			)
			cluster, err := kube.Connect(server.Config("operator"))
			if err != nil {
				t.Fatal(err)
			}
			parts, err := informer.New(informer.Config[unstructuredObject]{
				Retriever: informer.RetrieveSelected[unstructuredObject](cluster, kube.Selection{Kind: gv.WithKind("Part")}),
			})
			if err != nil {
				t.Fatal(err)
			}
			zones, err := informer.New(informer.Config[unstructuredObject]{
				Retriever: informer.RetrieveSelected[unstructuredObject](cluster, kube.Selection{Kind: gv.WithKind("Zone")}),
			})
			if err != nil {
				t.Fatal(err)
			}
			var runs journal
			var log testlog.Buffer
			config := controller.Config[unstructuredObject]{
				Name: "zones", Informer: zones, ResyncInterval: -1,
				Sources: []controller.Source{source.OwnedIn(parts, source.Owner{Kind: schema.GroupKind{Group: gv.Group, Kind: "Zone"}})},
				Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			}
			if reconciler {
				config.Reconciler = func(ctx context.Context, key kube.Key) error {
					runs.add("%s: %s", key, causesOf(ctx))
					return nil
				}
			} else {
				config.Handler = func(ctx context.Context, zone unstructuredObject) error {
					runs.add("%s: %s", kube.KeyOf(zone), causesOf(ctx))
					return nil
				}
			}
			server.Edit("zones", kube.Key{Name: "north"}, "somebody", func(map[string]any) bool { return true })
			ctrl, err := controller.New(config)
			if err != nil {
				t.Fatal(err)
			}
			start(t, ctrl)
			time.Sleep(time.Second)
			runs.take()
			for _, name := range []string{"a", "b"} {
				server.Edit("parts", kube.Key{Namespace: "ns", Name: name}, "somebody", func(part map[string]any) bool {
					part["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
						"apiVersion": gv.String(), "kind": "Zone", "name": "north", "uid": "u", "controller": true,
					}}
					return true
				})
				time.Sleep(time.Second)
			}
			got := runs.take()
			if len(got) != 2 || slices.ContainsFunc(got, func(run string) bool {
				return !strings.HasPrefix(run, "north: ") || !strings.Contains(run, "Part: ns/")
			}) {
				t.Errorf("the runs are %q, want two of north, because of its parts", got)
			}
			if strings.Contains(log.String(), "level=WARN") {
				t.Errorf("logged:\n%s", &log)
			}
		})
	}
}
