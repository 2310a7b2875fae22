package finalizer_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func books() kube.Key { return kube.Key{Namespace: "town", Name: "books"} }

// newServer returns a server in memory with an object that is being deleted, and a client of it.
func newServer() (*apitest.Server, *client.Client) {
	server := apitest.New(apiserver.ConfigMaps())
	cluster, err := kube.Connect(server.Config("example"))
	if err != nil {
		panic(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		panic(err)
	}
	edit(server, func(obj map[string]any) {
		obj["metadata"].(map[string]any)["finalizers"] = []any{"shop.example.com/cleanup"}
	})
	server.Edit("configmaps", books(), "others", func(map[string]any) bool { return false })
	return server, c
}

// startServer returns a client of such a server, and the object: its first step is done.
func startServer() (c *client.Client, obj *corev1.ConfigMap, stop func()) {
	server, c := newServer()
	edit(server, func(obj map[string]any) {
		metadata := obj["metadata"].(map[string]any)
		metadata["annotations"] = map[string]any{"shop.example.com/cleanup-done": fmt.Sprint(metadata["uid"], ":dns")}
	})
	obj, err := client.Get[*corev1.ConfigMap](context.Background(), c, books())
	if err != nil {
		panic(err)
	}
	return c, obj, func() { server.Hook(nil) }
}
