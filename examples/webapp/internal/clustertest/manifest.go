package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Client returns a client with the field owner of manifests.
func Client(cluster *kube.Cluster) (*client.Client, error) {
	return client.New(client.Config{Cluster: cluster, FieldOwner: "installer"})
}

// Read returns the objects of a YAML file, in its order.
func Read(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read object %d of a manifest: %w", len(objects), err)
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}

// Apply applies the objects of a YAML file in its order, as kubectl apply --server-side does. Namespaced objects
// without a namespace go to the given one.
func Apply(ctx context.Context, cluster *kube.Cluster, namespace string, text []byte) error {
	objects, err := Read(text)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		resource, err := cluster.Resource(ctx, obj.GroupVersionKind())
		if err != nil {
			return fmt.Errorf("find the resource of %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		if resource.Namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		if err := ApplyObject(ctx, cluster, obj); err != nil {
			return err
		}
	}
	return nil
}

// ApplyObject applies one object.
func ApplyObject(ctx context.Context, cluster *kube.Cluster, obj *unstructured.Unstructured) error {
	c, err := Client(cluster)
	if err == nil {
		_, err = client.Apply(ctx, c, obj, client.Force())
	}
	return err
}

// InstallCRD applies the CustomResourceDefinitions of a YAML file, and waits until the API server serves them.
func InstallCRD(ctx context.Context, cluster *kube.Cluster, text []byte) error {
	c, err := Client(cluster)
	if err != nil {
		return err
	}
	definitions, err := crd.Parse(text)
	if err == nil {
		_, err = crd.Ensure(ctx, c, definitions)
	}
	return err
}
