package finalizer_test

import (
	"context"
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// startServer returns a client of a server in memory, and an object that is being deleted.
func startServer() (c *client.Client, obj *corev1.ConfigMap, stop func()) {
	server := fakeserver.New(fakeserver.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps"})
	cluster, err := kube.Connect(server.Config("example"))
	if err != nil {
		panic(err)
	}
	c, err = client.New(client.Config{Cluster: cluster, Interceptors: []client.Interceptor{jsonPatches(server)}})
	if err != nil {
		panic(err)
	}
	key := kube.Key{Namespace: "town", Name: "books"}
	server.Edit("configmaps", key, "others", func(obj map[string]any) bool {
		metadata := obj["metadata"].(map[string]any)
		metadata["finalizers"] = []any{"shop.example.com/cleanup"}
		metadata["annotations"] = map[string]any{"shop.example.com/cleanup-done": "dns"}
		return true
	})
	server.Edit("configmaps", key, "others", func(map[string]any) bool { return false })
	obj, err = client.Get[*corev1.ConfigMap](context.Background(), c, key)
	if err != nil {
		panic(err)
	}
	return c, obj, func() { server.Hook(nil) }
}

// jsonPatches does what the server cannot: they become updates of what they were made for.
func jsonPatches(server *fakeserver.Server) client.Interceptor {
	return client.On(func(next client.RoundTrip) client.RoundTrip {
		return func(ctx context.Context, r *client.Request) error {
			obj := server.Object(r.Resource.Resource, r.Key)
			if r.PatchType != types.JSONPatchType || obj == nil {
				return next(ctx, r)
			}
			patch, err := jsonpatch.DecodePatch(r.Body)
			if err != nil {
				return err
			}
			encoded, err := json.Marshal(obj.Object)
			if err != nil {
				return err
			}
			patched, err := patch.Apply(encoded)
			if err != nil {
				return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", r.Resource.GroupResource(), "", err.Error(), 0, false)
			}
			changed := &unstructured.Unstructured{}
			if err := changed.UnmarshalJSON(patched); err != nil {
				return err
			}
			r.Verb, r.PatchType, r.Body, r.Object = client.VerbUpdate, "", nil, changed
			return next(ctx, r)
		}
	}, client.VerbPatch)
}
