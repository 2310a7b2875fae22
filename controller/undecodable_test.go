package controller_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestUndecodableObjectFailsItsOwnRun checks that an object that cannot be decoded fails only its own run.
func TestUndecodableObjectFailsItsOwnRun(t *testing.T) {
	synctest.Test(t, testUndecodableObject)
}

func testUndecodableObject(t *testing.T) {
	server := kindserver.New[*unstructured.Unstructured](apiserver.Custom(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps"), true) // not validated
	put := func(name string, value any) {
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "ns", "name": name}, "data": map[string]any{"value": value},
		}})
	}
	put("good", "1")
	put("bad", int64(1))
	raw, err := informer.New(informer.Config[*unstructured.Unstructured]{Name: "maps", Retriever: server})
	if err != nil {
		t.Fatal(err)
	}
	typed, err := informer.As[*corev1.ConfigMap](raw)
	if err != nil {
		t.Fatal(err)
	}
	var runs, logs journal
	recorder := newRecorder()
	c := config(nil, func(_ context.Context, m configMap) error { runs.add("%s=%s", m.Name, m.Data["value"]); return nil })
	c.Retriever, c.Informer, c.Metrics, c.Logger = nil, typed, recorder, logs.logger(0)
	c.Retry = retry.Config{Every: retry.Policy{Base: time.Minute, Max: time.Minute, Jitter: -1}}
	ctrl := newController(t, c)
	start(t, ctrl)
	synctest.Wait()
	put("good", "2")
	time.Sleep(150 * time.Second)
	synctest.Wait()
	if diff := cmp.Diff([]string{"good=1", "good=2"}, runs.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if outcomes, retries := recorder.snapshot(); outcomes[controller.OutcomeError] != 3 || retries != 2 {
		t.Errorf("outcomes %v, %d retries; want 3 errors of which 2 are retries", outcomes, retries)
	}
	if text := strings.Join(logs.take(), "\n"); !strings.Contains(text, "read ns/bad from the cache") {
		t.Errorf("the log does not say what is wrong:\n%s", text)
	}
	if err := ctrl.Ready(); err != nil {
		t.Errorf("one object that cannot be read makes the controller unready: %v", err)
	}
	put("bad", "3")
	synctest.Wait()
	if diff := cmp.Diff([]string{"bad=3"}, runs.take()); diff != "" {
		t.Errorf("when it was mended (-want +got):\n%s", diff)
	}
}
