package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

//go:embed web.yaml
var webManifest []byte

//go:embed chaos.yaml
var chaosManifest []byte

// setUp creates everything except the PodTerminator, and waits until the Pods run.
func (d *demo) setUp(ctx context.Context) error {
	ctx, cancel := d.step(ctx)
	defer cancel()
	namespace, err := d.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "evenkeel-demo-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a namespace for the demo: %w", err)
	}
	d.namespace = namespace.Name
	d.printer.event(kindStep, "Namespace "+d.namespace, "created")
	if d.local.Existing() {
		d.printer.text("(if the demo is killed: kubectl -n %[1]s patch %[2]s %[3]s --type=merge -p "+
			"'{\"metadata\":{\"finalizers\":null}}'; kubectl delete namespace %[1]s)",
			d.namespace, v1alpha1.Resource, terminatorName)
	}

	d.crdIsOurs, err = manifest.InstallCRD(ctx, d.cluster, config.CRD)
	if err != nil {
		return err
	}
	d.printer.event(kindStep, "CustomResourceDefinition", "podterminators is established")
	if d.local.Existing() && d.crdIsOurs {
		d.printer.text("(and: kubectl delete crd %s.%s)", v1alpha1.Resource, v1alpha1.Group)
	}
	// Long before the operator starts, because the API server needs some time to use them.
	if err := d.grant(ctx); err != nil {
		return err
	}
	if err := manifest.Apply(ctx, d.cluster, d.namespace, webManifest); err != nil {
		return err
	}
	deployment, err := d.untilReady(ctx)
	if err != nil {
		return err
	}
	d.replicas = int(deployment.Status.ReadyReplicas)
	d.printer.event(kindStep, "Deployment "+deploymentName, "%d Pods run", deployment.Status.ReadyReplicas)

	d.observer, err = newObserver(d.cluster, d.namespace, d.printer)
	if err != nil {
		return err
	}
	asOperator, err := d.asOperator()
	if err != nil {
		return err
	}
	if err := asOperator.SetNamespaces(d.namespace); err != nil {
		return err
	}
	d.operator, err = operator.New(asOperator, operator.Config{
		Middleware: []controller.Middleware[*v1alpha1.PodTerminator]{d.printRuns},
	})
	return err
}

// untilReady waits until all Pods of the Deployment run, and returns the Deployment.
func (d *demo) untilReady(ctx context.Context) (*appsv1.Deployment, error) {
	c, err := manifest.Client(d.cluster)
	if err != nil {
		return nil, err
	}
	return client.WaitFor[*appsv1.Deployment](ctx, c, kube.Key{Namespace: d.namespace, Name: deploymentName},
		readiness.Of)
}

func (d *demo) applyTerminator(ctx context.Context) error {
	ctx, cancel := d.step(ctx)
	defer cancel()
	if err := manifest.Apply(ctx, d.cluster, d.namespace, chaosManifest); err != nil {
		return err
	}
	pt := &v1alpha1.PodTerminator{}
	if err := yaml.Unmarshal(chaosManifest, pt); err != nil {
		return fmt.Errorf("read the PodTerminator: %w", err)
	}
	d.printer.event(kindStep, "PodTerminator "+terminatorName, "applied: ends %d%% of the Pods every %s, keeps %d",
		pt.Spec.Percent, pt.Spec.Period.Duration, pt.Spec.MinAlive)
	if path := d.local.Kubeconfig(); path != "" {
		d.printer.text("(to inspect: KUBECONFIG=%s kubectl -n %s get podterminators,pods)", path, d.namespace)
	}
	return nil
}

// cleanUp stops the local cluster, or deletes the demo's objects in another cluster. It continues after the end of ctx,
// because Ctrl-C ends ctx.
func (d *demo) cleanUp(ctx context.Context) error {
	defer d.stopObserver()
	if d.namespace == "" {
		return nil
	}
	if ctx.Err() != nil {
		byHand := ""
		if d.local.Existing() {
			byHand = "; then delete the objects with the commands above"
		}
		d.printer.text("(interrupted: cleaning up takes some seconds; another Ctrl-C ends at once without cleanup%s)",
			byHand)
	}
	ctx, cancel := d.step(context.WithoutCancel(ctx))
	defer cancel()
	var errs []error
	if d.operator != nil {
		errs = append(errs, d.removeTerminator(ctx))
	}
	d.stopObserver()
	if !d.local.Existing() {
		return errors.Join(errs...)
	}
	errs = append(errs, manifest.Delete(ctx, d.cluster, object("v1", "Namespace", d.namespace)))
	if d.crdIsOurs {
		name := v1alpha1.Resource + "." + v1alpha1.Group
		errs = append(errs,
			manifest.Delete(ctx, d.cluster, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)))
	}
	err := errors.Join(errs...)
	if err == nil {
		d.printer.event(kindStep, "Namespace "+d.namespace, "deleted, with its objects")
	}
	return err
}

// removeTerminator deletes the PodTerminator. Its finalizer needs the operator, which is started again for that: it
// ends no Pods for a PodTerminator that is being deleted.
func (d *demo) removeTerminator(ctx context.Context) error {
	obj := object(v1alpha1.GroupVersion().String(), v1alpha1.Kind, terminatorName)
	obj.SetNamespace(d.namespace)
	c, err := manifest.Client(d.cluster)
	if err != nil {
		return err
	}
	err = client.Delete(ctx, c, obj)
	switch {
	case errors.Is(err, client.ErrGone):
		return nil // interrupted before it was created
	case err != nil:
		return err
	}
	defer inBackground(ctx, d.operate)()
	if err := manifest.Delete(ctx, d.cluster, obj); err != nil {
		return err
	}
	d.printer.event(kindStep, "PodTerminator "+terminatorName, "deleted: its finalizer has run")
	return nil
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetName(name)
	return obj
}
