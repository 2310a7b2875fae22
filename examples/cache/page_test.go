package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/source"
)

// Samples of docs/cache.md and docs/sources.md that the program does not need.
func TestSamplesOfPages(t *testing.T) {
	exampletest.AnyCluster(t, simulation.Config{})
	cluster, err := kube.Connect(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	namespace := exampletest.Namespace(t)
	for name, tier := range map[string]string{"web-1": "front", "web-2": "front", "db-1": "back"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"tier": tier},
				Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "kept"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "1"}},
			}}},
		}
		if _, err := exampletest.Core(t).Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, Data: map[string][]byte{"word": []byte("secret")}}
	if _, err := exampletest.Core(t).Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := showRest(t, cluster, namespace); err != nil {
		t.Error(err)
	}
	secrets, err := informer.New(informer.Config[*corev1.Secret]{
		Retriever: informer.RetrieveSelected[*corev1.Secret](cluster, kube.Selection{Namespaces: []string{namespace}}),
		Transform: func(secret *corev1.Secret) error {
			for name, value := range secret.Data {
				sum := sha256.Sum256(value)
				secret.Data[name] = sum[:] // enough to detect changes
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := showTransform(t.Context(), secrets, kube.Key{Namespace: namespace, Name: "password"}); err != nil {
		t.Error(err)
	}
	// region cut
	pods, err := informer.New(informer.Config[*corev1.Pod]{
		Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Namespaces: []string{namespace}}),
		Cut:       []string{"spec.containers.env", informer.LastApplied},
	})
	// endregion
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- pods.Run(ctx) }() // waited for below
	if err := pods.WaitSynced(ctx); err != nil {
		t.Fatal(err)
	}
	if err := showReads(pods, namespace); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := addsSource(cluster, namespace); err != nil {
		t.Error(err)
	}
}

// showRest checks an informer with different selections for one namespace and for the others.
func showRest(t *testing.T, cluster *kube.Cluster, namespace string) error {
	t.Helper()
	other := exampletest.Namespace(t)
	configMap := func(namespace, name, app string) error {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
		_, err := exampletest.Core(t).ConfigMaps(namespace).Create(t.Context(), obj, metav1.CreateOptions{})
		return err
	}
	if err := errors.Join(configMap(namespace, "mine", ""), configMap(other, "public", "rest"), configMap(other, "private", "")); err != nil {
		return err
	}
	// region rest
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.Combine(
			informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{namespace}}),
			informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{ // the remaining namespaces
				FieldSelector: "metadata.namespace!=" + namespace,
				LabelSelector: "app=rest",
			}),
		),
		OnError: func(err error) { fmt.Println("an alert:", err) },
	})
	// endregion
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	defer configs.Join(ctx)()
	if err := configs.WaitSynced(ctx); err != nil {
		return err
	}
	for key, want := range map[kube.Key]bool{
		{Namespace: namespace, Name: "mine"}: true, {Namespace: other, Name: "public"}: true, {Namespace: other, Name: "private"}: false,
	} {
		_, got, err := configs.Get(key)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the informer has %s: %t, want %t", key, got, want)
		}
	}
	return nil
}

// showTransform checks that the cached Secret has the hash of its value.
func showTransform(ctx context.Context, secrets *informer.Informer[*corev1.Secret], key kube.Key) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	defer secrets.Join(ctx)()
	if err := secrets.WaitSynced(ctx); err != nil {
		return err
	}
	secret, found, err := secrets.Get(key)
	if want := sha256.Sum256([]byte("secret")); err != nil || !found || string(secret.Data["word"]) != string(want[:]) {
		return fmt.Errorf("the cached Secret is %v, %t, %w", secret, found, err)
	}
	return nil
}

func showReads(pods *informer.Informer[*corev1.Pod], namespace string) error {
	// region get
	pod, found, err := pods.Get(kube.Key{Namespace: namespace, Name: "web-1"})
	if err != nil {
		return err // the Pod exists, but cannot be decoded
	}
	if !found {
		return errors.New("there is no such Pod") // or the cache does not contain it yet
	}
	pod.Labels["seen"] = "true" // changes only this copy
	// endregion
	if len(pod.Spec.Containers[0].Env) != 0 || len(pod.ManagedFields) != 0 || !maps.Equal(pod.Annotations, map[string]string{"note": "kept"}) {
		return fmt.Errorf("fields were not cut: %+v", pod)
	}
	front, err := labels.Parse("tier in (front, edge)")
	if err != nil {
		return err
	}
	query := informer.Query{Namespace: namespace, Labels: front}
	if err := pods.AddIndex(informer.Index[*corev1.Pod]{
		Name: "image", Values: func(pod *corev1.Pod) (images []string) {
			for _, container := range pod.Spec.Containers {
				images = append(images, container.Image)
			}
			return images
		},
	}); err != nil {
		return err
	}
	users, err := pods.Count(informer.Query{Index: "image", Value: "i"})
	if err != nil || users != 3 {
		return fmt.Errorf("%d Pods use the image: %w", users, err)
	}
	now := pods.Snapshot()
	all, some := now.Len(), 0
	for _, err := range now.List(query) {
		if err != nil {
			return err
		}
		some++
	}
	fmt.Printf("%d of %d Pods, at the same moment\n", some, all)
	if h := pods.Health(); h.Err != nil {
		fmt.Printf("since %s: %v\n", h.ErrSince, h.Err)
	} else {
		fmt.Printf("%d objects in %d bytes\n", h.Objects, h.Bytes)
	}
	names := []string{}
	for pod, err := range pods.List(query) {
		if err != nil {
			return err
		}
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"web-1", "web-2"}, names); diff != "" || some != 2 || all != 3 {
		return fmt.Errorf("%d of %d: (-want +got):\n%s", some, all, diff)
	}
	if second, _, err := pods.Get(kube.KeyOf(pod)); err != nil || second.Labels["seen"] != "" {
		return fmt.Errorf("another reader sees the change: %v, %w", second, err)
	}
	if _, err := pods.Count(informer.Query{Index: "phase", Value: "Running"}); err == nil || !strings.Contains(err.Error(), `no index "phase"`) {
		return fmt.Errorf("query of a missing index: %w", err)
	}
	return nil
}

// addsSource creates a controller, and adds a source of Jobs for some time.
func addsSource(cluster *kube.Cluster, namespace string) error {
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name:      "config-maps",
		Retriever: in[*corev1.ConfigMap](cluster, namespace),
		Handler:   func(context.Context, *corev1.ConfigMap) error { return nil },
	})
	if err != nil {
		return err
	}
	remove, err := ctrl.AddSource(source.Owned[*batchv1.Job](cluster))
	if err != nil {
		return err
	}
	// … and when Jobs are not needed:
	remove()
	return nil
}
