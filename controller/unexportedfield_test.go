package controller_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// memo has a field that the converter of apimachinery cannot read.
type memo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Data              map[string]string `json:"data,omitempty"`

	parsed metav1.Time // what the program has computed
}

func (m *memo) DeepCopyObject() runtime.Object {
	c := *m
	c.ObjectMeta = *m.ObjectMeta.DeepCopy()
	c.Data = map[string]string{}
	maps.Copy(c.Data, m.Data)
	return &c
}

func TestHandlersOfTypesWithUnexportedFieldsSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
		server := apitest.New(apiserver.Custom(gv.WithKind("Widget"), "widgets"))
		cluster, err := kube.Connect(server.Config("operator"), func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(gv.WithKind("Widget"), &memo{})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		server.Edit("widgets", key("a"), "somebody", func(obj map[string]any) bool { obj["data"] = map[string]any{"a": "b"}; return true })
		var logs journal
		ctrl, err := controller.New(controller.Config[*memo]{
			Name: "test", Cluster: cluster, ResyncInterval: -1, Logger: logs.logger(slog.LevelWarn),
			Handler: func(_ context.Context, m *memo) error {
				m.parsed = m.CreationTimestamp
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		start(t, ctrl)
		synctest.Wait()
		for _, run := range ctrl.RecentRuns() {
			if run.Outcome != controller.OutcomeSuccess {
				t.Errorf("%s: %s", run.Outcome, run.Error)
			}
		}
		if text := strings.Join(logs.take(), "\n"); text != "" {
			t.Error(text[:min(len(text), 3000)])
		}
	})
}
