package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// world is an API server of Widgets, which have a status, and of Parts. It has a client of the controller and methods
// that change objects as another client.
type world struct {
	*apitest.Server
	t       *testing.T
	cluster *kube.Cluster
	client  dynamic.Interface // the controller's client; its calls are observed
}

type unstructuredObject = *unstructured.Unstructured

func newWorld(t *testing.T) *world {
	t.Helper()
	server := apitest.New(apitest.Widgets(), apitest.Parts())
	cluster, client := apitest.Connect(server.Config("operator"))
	return &world{Server: server, t: t, cluster: cluster, client: client}
}

func kindOf(kind string) schema.GroupVersionKind { return apitest.KindNamed(kind) }

// objects returns a client for a resource in the tests' namespace.
func (w *world) objects(resource string) dynamic.ResourceInterface {
	return w.client.Resource(apitest.Version().WithResource(resource)).Namespace("ns")
}

// patch applies a merge patch as the controller.
func (w *world) patch(ctx context.Context, resource, name, patch string, subresources ...string) error {
	_, err := w.objects(resource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// jsonPatch applies a JSON patch as the controller.
func (w *world) jsonPatch(ctx context.Context, resource, name, patch string, subresources ...string) error {
	_, err := w.objects(resource).Patch(ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// create creates an object as the controller. labels are alternating keys and values.
func (w *world) create(ctx context.Context, resource, kind, name string, labels ...string) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kindOf(kind))
	obj.SetName(name)
	for i := 0; i+1 < len(labels); i += 2 {
		obj.SetLabels(map[string]string{labels[i]: labels[i+1]})
	}
	_, err := w.objects(resource).Create(ctx, obj, metav1.CreateOptions{})
	return err
}

// createPart creates the Part p as the controller, unless there is a Part. labels are alternating keys and values.
func (w *world) createPart(ctx context.Context, labels ...string) error {
	if len(w.Keys("parts")) > 0 {
		return nil
	}
	return w.create(ctx, "parts", "Part", "p", labels...)
}

// widgetWithPart puts the Widget a, and creates its Part p as the controller.
func (w *world) widgetWithPart() {
	w.t.Helper()
	w.put("widgets", "a", 1)
	if err := w.createPart(w.t.Context(), "widget", "a"); err != nil {
		w.t.Fatal(err)
	}
}

// after makes the server call then after it has processed a request with this method, and before it responds.
func (w *world) after(method string, then func()) {
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		resp := do()
		if req.Method == method {
			then()
		}
		return resp, nil
	})
}

// put sets spec.value of an object as another client, and creates the object if it does not exist.
func (w *world) put(resource, name string, value any) string {
	return w.Edit(resource, key(name), "somebody", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"value": value}
		return true
	})
}

// uid returns the uid of an object that exists.
func (w *world) uid(resource, name string) types.UID { return w.Object(resource, key(name)).GetUID() }

// remove deletes an object as another client.
func (w *world) remove(resource, name string) {
	w.Edit(resource, key(name), "somebody", func(map[string]any) bool { return false })
}

// config returns a config for a controller of Widgets.
func (w *world) config(handle func(ctx context.Context, widget unstructuredObject) error) controller.Config[unstructuredObject] {
	return controller.Config[unstructuredObject]{
		Name:           "widgets",
		Retriever:      informer.RetrieveSelected[unstructuredObject](w.cluster, kube.Selection{Kind: kindOf("Widget")}),
		Handler:        handle,
		ResyncInterval: -1,
		Logger:         slog.New(slog.DiscardHandler),
	}
}

// run runs a controller until the test ends.
func (w *world) run(c controller.Config[unstructuredObject]) *controller.Controller[unstructuredObject] {
	w.t.Helper()
	ctrl, err := controller.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	start(w.t, ctrl)
	return ctrl
}

func causesOf(ctx context.Context) string {
	run, _ := controller.RunFrom(ctx)
	return fmt.Sprint(run.Causes)
}
