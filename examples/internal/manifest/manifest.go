// Package manifest brings the objects of YAML files to a cluster, as kubectl apply does.
package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	fieldManager = "evenkeel-examples"
	pollInterval = 50 * time.Millisecond
)

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

// Apply applies the objects of a YAML file (server-side apply), in its order. Objects
// that name no namespace go to the given one, where their kind has namespaces.
func Apply(ctx context.Context, cluster *kube.Cluster, namespace string, text []byte) error {
	objects, err := Read(text)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		if err := ApplyObject(ctx, cluster, obj); err != nil {
			return err
		}
	}
	return nil
}

// ApplyObject applies one object (server-side apply).
func ApplyObject(ctx context.Context, cluster *kube.Cluster, obj *unstructured.Unstructured) error {
	client, err := Client(ctx, cluster, obj)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := client.Apply(ctx, obj.GetName(), obj, options); err != nil {
		return fmt.Errorf("apply %s: %w", describe(obj), err)
	}
	return nil
}

// InstallCRD creates the CustomResourceDefinition of a YAML file, unless there is one of
// that name, and waits until the API server serves it. created says that it was not there.
func InstallCRD(ctx context.Context, cluster *kube.Cluster, text []byte) (created bool, err error) {
	objects, err := Read(text)
	if err != nil {
		return false, err
	}
	if len(objects) != 1 || objects[0].GetKind() != "CustomResourceDefinition" {
		return false, errors.New("install a CustomResourceDefinition: the manifest must hold just that")
	}
	crd := objects[0]
	client, err := Client(ctx, cluster, crd)
	if err != nil {
		return false, err
	}
	_, err = client.Create(ctx, crd, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create %s: %w", describe(crd), err)
	}
	created = err == nil
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
		return err == nil && hasCondition(current, "Established"), err
	})
	if err != nil {
		return created, fmt.Errorf("wait until %s is established: %w", describe(crd), err)
	}
	return created, nil
}

// Delete deletes obj and waits until it is gone: its finalizers have run, and those of
// what it contains when it is a namespace or a CustomResourceDefinition. An object that
// is not there is fine.
func Delete(ctx context.Context, cluster *kube.Cluster, obj *unstructured.Unstructured) error {
	client, err := Client(ctx, cluster, obj)
	if err != nil {
		return err
	}
	err = client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", describe(obj), err)
	}
	var left *unstructured.Unstructured
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil {
			left = current
		}
		return false, err
	})
	if err != nil {
		finalizers := []string{}
		if left != nil {
			finalizers = left.GetFinalizers()
		}
		return fmt.Errorf("wait until %s is gone (finalizers %q): %w", describe(obj), finalizers, err)
	}
	return nil
}

// Client returns a client for the kind and the namespace of obj.
func Client(ctx context.Context, cluster *kube.Cluster, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	resource, err := cluster.Resource(ctx, obj.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", describe(obj), err)
	}
	client, err := dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", describe(obj), err)
	}
	if !resource.Namespaced {
		obj.SetNamespace("")
		return client.Resource(resource.GroupVersionResource), nil
	}
	return client.Resource(resource.GroupVersionResource).Namespace(obj.GetNamespace()), nil
}

func describe(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + kube.KeyOf(obj).String()
}

func hasCondition(obj *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}
