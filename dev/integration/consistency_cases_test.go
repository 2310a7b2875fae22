package integration

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// writeFunc is ownWrite.write.
type writeFunc = func(ctx context.Context, w *writing) (metav1.Object, error)

// object returns the response of a typed client as an interface, which is nil without a response.
func object[T any, P interface {
	*T
	metav1.Object
}](answer P, err error) (metav1.Object, error) {
	if answer == nil || err != nil {
		return nil, err
	}
	return answer, nil
}

type deploymentClient = appsv1client.DeploymentInterface

// deploymentCases returns writes of objects that an informer stores completely, in protobuf.
type deploymentCases map[string]ownWrite

func deploymentWrites() map[string]ownWrite {
	cases := deploymentCases{}
	cases.updates()
	cases.patches()
	cases.applies()
	cases.deletions()
	return cases
}

// with adds a write of an existing Deployment.
func (cases deploymentCases) with(name string, again again, want []string,
	write func(ctx context.Context, w *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error),
) {
	var d *appsv1.Deployment
	cases[name] = ownWrite{
		resource: appsv1.SchemeGroupVersion.WithResource("deployments"), want: want, again: again,
		prepare: func(w *writing) {
			d = must(w.clients.AppsV1().Deployments(w.namespace).Create(w.Context(), w.deployment(), metav1.CreateOptions{}))(w.T)
		},
		write: func(ctx context.Context, w *writing) (metav1.Object, error) {
			return write(ctx, w, d.DeepCopy(), w.own.AppsV1().Deployments(w.namespace))
		},
	}
}

// without adds a write without an existing Deployment.
func (cases deploymentCases) without(name string, want []string, write writeFunc) {
	cases[name] = ownWrite{resource: appsv1.SchemeGroupVersion.WithResource("deployments"), want: want, write: write}
}

func (cases deploymentCases) updates() {
	cases.with("update", never, []string{"update Deployment: done"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.Spec.Replicas = new(int32(2))
		return object(c.Update(ctx, d, metav1.UpdateOptions{}))
	})
	cases.with("update-unconditional", perhaps, []string{"update Deployment: done"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.ResourceVersion, d.Spec.Replicas = "", new(int32(2))
		return object(c.Update(ctx, d, metav1.UpdateOptions{}))
	})
	cases.with("update-nothing", never, []string{"update Deployment: no change"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		return object(c.Update(ctx, d, metav1.UpdateOptions{}))
	})
	cases.with("update-conflict", never, []string{"update Deployment: rejected"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.ResourceVersion, d.Spec.Replicas = "1", new(int32(2))
		return object(c.Update(ctx, d, metav1.UpdateOptions{}))
	})
	cases.with("update-dry-run", never, []string{"update Deployment: dry run"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.Spec.Replicas = new(int32(2))
		return object(c.Update(ctx, d, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	cases.with("update-twice", never, []string{"update Deployment: done", "update Deployment/status: done"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.Spec.Replicas = new(int32(2))
		d, err := c.Update(ctx, d, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		d.Status.ObservedGeneration = d.Generation
		return object(c.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
	})
	cases.with("update-status", never, []string{"update Deployment/status: done"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		d.Status.ObservedGeneration = 1
		return object(c.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
	})
}

func (cases deploymentCases) patches() {
	patch := func(name string, again again, kind types.PatchType, patch, subresource string) {
		want := "patch Deployment: done"
		var subresources []string
		if subresource != "" {
			want, subresources = "patch Deployment/"+subresource+": done", []string{subresource}
		}
		cases.with(name, again, []string{want}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
			answer, err := c.Patch(ctx, d.Name, kind, []byte(patch), metav1.PatchOptions{}, subresources...)
			if subresource == "scale" {
				return nil, err // the response is not a Deployment
			}
			return object(answer, err)
		})
	}
	patch("patch-merge", never, types.MergePatchType, `{"spec":{"replicas":2}}`, "")
	patch("patch-merge-status", never, types.MergePatchType, `{"status":{"observedGeneration":1}}`, "status")
	patch("patch-strategic", never, types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other"}]}}}}`, "")
	patch("patch-strategic-new", perhaps, types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"i"}]}}}}`, "")
	patch("patch-json", perhaps, types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":2}]`, "")
	patch("patch-finalizers", never, types.MergePatchType, `{"metadata":{"finalizers":["evenkeel.dev/test"]}}`, "")
	patch("patch-scale", perhaps, types.MergePatchType, `{"spec":{"replicas":2}}`, "scale")
	cases.with("scale", never, []string{"update Deployment/scale: done"}, func(ctx context.Context, _ *writing, d *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		return object(c.UpdateScale(ctx, d.Name, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, ResourceVersion: d.ResourceVersion},
			Spec:       autoscalingv1.ScaleSpec{Replicas: 2},
		}, metav1.UpdateOptions{}))
	})
}

func (cases deploymentCases) applies() {
	apply := func(ctx context.Context, c deploymentClient, a *appsv1apply.DeploymentApplyConfiguration) (metav1.Object, error) {
		return object(c.Apply(ctx, a, metav1.ApplyOptions{FieldManager: "operator", Force: true}))
	}
	cases.with("apply", never, []string{"patch Deployment: done", "patch Deployment: no change"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		if _, err := apply(ctx, c, w.applied(2)); err != nil {
			return nil, err
		}
		return apply(ctx, c, w.applied(2))
	})
	cases.with("apply-replicas", never, []string{"patch Deployment: done"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		return apply(ctx, c, appsv1apply.Deployment(w.name, w.namespace).WithSpec(appsv1apply.DeploymentSpec().WithReplicas(2)))
	})
	cases.without("apply-create", []string{"patch Deployment: done", "patch Deployment: no change"}, func(ctx context.Context, w *writing) (metav1.Object, error) {
		c := w.own.AppsV1().Deployments(w.namespace)
		if _, err := apply(ctx, c, w.applied(1)); err != nil {
			return nil, err
		}
		return apply(ctx, c, w.applied(1))
	})
	cases.without("create", []string{"create Deployment: done", "create Deployment: rejected"}, func(ctx context.Context, w *writing) (metav1.Object, error) {
		c := w.own.AppsV1().Deployments(w.namespace)
		if _, err := c.Create(ctx, w.deployment(), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		return object(c.Create(ctx, w.deployment(), metav1.CreateOptions{}))
	})
	cases.without("create-named", []string{"create Deployment: done"}, func(ctx context.Context, w *writing) (metav1.Object, error) {
		d := w.deployment()
		d.Name, d.GenerateName = "", w.name+"-"
		return object(w.own.AppsV1().Deployments(w.namespace).Create(ctx, d, metav1.CreateOptions{}))
	})
}

func (cases deploymentCases) deletions() {
	remove := func(name string, want string, options metav1.DeleteOptions) {
		cases.with(name, always, []string{want}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
			return nil, c.Delete(ctx, w.name, options)
		})
	}
	remove("delete", "delete Deployment: done", metav1.DeleteOptions{})
	remove("delete-foreground", "delete Deployment: done", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
	cases.with("delete-finalizers", always, []string{"patch Deployment: done", "delete Deployment: done"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		if _, err := c.Patch(ctx, w.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["evenkeel.dev/test"]}}`), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		return nil, c.Delete(ctx, w.name, metav1.DeleteOptions{})
	})
	cases.with("delete-finish", always, []string{"patch Deployment: done", "delete Deployment: done", "patch Deployment: done"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		finalizers := func(list string) error {
			_, err := c.Patch(ctx, w.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
			return err
		}
		if err := finalizers(`["evenkeel.dev/test"]`); err != nil {
			return nil, err
		}
		if err := c.Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return nil, finalizers("null") // which ends it
	})
	cases.with("delete-dry-run", never, []string{"delete Deployment: dry run"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		return nil, c.Delete(ctx, w.name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
	cases.with("delete-and-create", always, []string{"delete Deployment: done", "create Deployment: done"}, func(ctx context.Context, w *writing, _ *appsv1.Deployment, c deploymentClient) (metav1.Object, error) {
		if err := c.Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return object(c.Create(ctx, w.deployment(), metav1.CreateOptions{}))
	})
}

// podWrites returns writes of objects of which an informer stores the metadata.
func podWrites() map[string]ownWrite {
	cases := map[string]ownWrite{}
	type client = corev1client.PodInterface
	with := func(name, node string, again again, want []string, write func(ctx context.Context, w *writing, p *corev1.Pod, c client) (metav1.Object, error)) {
		var p *corev1.Pod
		cases[name] = ownWrite{
			resource: corev1.SchemeGroupVersion.WithResource("pods"), want: want, again: again,
			prepare: func(w *writing) {
				p = w.pod()
				p.Spec.NodeName = node
				p = must(w.clients.CoreV1().Pods(w.namespace).Create(w.Context(), p, metav1.CreateOptions{}))(w.T)
			},
			write: func(ctx context.Context, w *writing) (metav1.Object, error) {
				return write(ctx, w, p.DeepCopy(), w.own.CoreV1().Pods(w.namespace))
			},
		}
	}
	cases["pod-create"] = ownWrite{
		resource: corev1.SchemeGroupVersion.WithResource("pods"), want: []string{"create Pod: done"},
		write: func(ctx context.Context, w *writing) (metav1.Object, error) {
			return object(w.own.CoreV1().Pods(w.namespace).Create(ctx, w.pod(), metav1.CreateOptions{}))
		},
	}
	with("pod-update", "", never, []string{"update Pod: done"}, func(ctx context.Context, _ *writing, p *corev1.Pod, c client) (metav1.Object, error) {
		p.Labels = map[string]string{"color": "red"}
		return object(c.Update(ctx, p, metav1.UpdateOptions{}))
	})
	with("pod-status", "", perhaps, []string{"patch Pod/status: done"}, func(ctx context.Context, w *writing, _ *corev1.Pod, c client) (metav1.Object, error) {
		return object(c.Patch(ctx, w.name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status"))
	})
	with("pod-bind", "", perhaps, []string{"create Pod/binding: done"}, func(ctx context.Context, w *writing, _ *corev1.Pod, c client) (metav1.Object, error) {
		return nil, c.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{})
	})
	remove := func(name, node string, options metav1.DeleteOptions) {
		with(name, node, always, []string{"delete Pod: done"}, func(ctx context.Context, w *writing, _ *corev1.Pod, c client) (metav1.Object, error) {
			return nil, c.Delete(ctx, w.name, options)
		})
	}
	remove("pod-delete-graceful", "node", metav1.DeleteOptions{})
	remove("pod-delete-at-once", "node", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	remove("pod-delete-unscheduled", "", metav1.DeleteOptions{})
	remove("pod-delete-foreground", "", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
	with("pod-delete-twice", "node", always, []string{"delete Pod: done", "delete Pod: done"}, func(ctx context.Context, w *writing, _ *corev1.Pod, c client) (metav1.Object, error) {
		if err := c.Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return nil, c.Delete(ctx, w.name, metav1.DeleteOptions{})
	})
	with("pod-evict", "", perhaps, []string{"create Pod/eviction: done"}, func(ctx context.Context, w *writing, _ *corev1.Pod, c client) (metav1.Object, error) {
		return nil, c.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace}})
	})
	return cases
}

// secretWrites returns writes of objects that an informer selects by a label.
func secretWrites() map[string]ownWrite {
	cases := map[string]ownWrite{}
	type client = corev1client.SecretInterface
	shown, hidden := map[string]string{"shown": "yes"}, map[string]string{"shown": "no"}
	with := func(name string, labels map[string]string, c ownWrite, write func(ctx context.Context, w *writing, s *corev1.Secret, c client) (metav1.Object, error)) {
		var s *corev1.Secret
		c.resource = corev1.SchemeGroupVersion.WithResource("secrets")
		c.prepare = func(w *writing) {
			s = must(w.clients.CoreV1().Secrets(w.namespace).Create(w.Context(), w.secret(labels), metav1.CreateOptions{}))(w.T)
		}
		c.write = func(ctx context.Context, w *writing) (metav1.Object, error) {
			return write(ctx, w, s.DeepCopy(), w.own.CoreV1().Secrets(w.namespace))
		}
		cases[name] = c
	}
	create := func(name string, labels map[string]string, unwatched bool) {
		cases[name] = ownWrite{
			resource: corev1.SchemeGroupVersion.WithResource("secrets"), want: []string{"create Secret: done"}, unwatched: unwatched,
			write: func(ctx context.Context, w *writing) (metav1.Object, error) {
				return object(w.own.CoreV1().Secrets(w.namespace).Create(ctx, w.secret(labels), metav1.CreateOptions{}))
			},
		}
	}
	create("secret-create", shown, false)
	create("secret-create-hidden", hidden, true)
	update := func(labels map[string]string) func(ctx context.Context, w *writing, s *corev1.Secret, c client) (metav1.Object, error) {
		return func(ctx context.Context, _ *writing, s *corev1.Secret, c client) (metav1.Object, error) {
			s.Labels, s.StringData = labels, map[string]string{"a": "c"} // which the server makes data of
			return object(c.Update(ctx, s, metav1.UpdateOptions{}))
		}
	}
	remove := func(ctx context.Context, w *writing, _ *corev1.Secret, c client) (metav1.Object, error) {
		return nil, c.Delete(ctx, w.name, metav1.DeleteOptions{})
	}
	done := []string{"update Secret: done"}
	with("secret-update", shown, ownWrite{want: done}, update(shown))
	with("secret-hide", shown, ownWrite{want: done, again: always, unwatched: true}, update(hidden))
	with("secret-show", hidden, ownWrite{want: done, again: perhaps}, update(shown))
	with("secret-update-hidden", hidden, ownWrite{want: done, unwatched: true}, update(hidden))
	with("secret-delete", shown, ownWrite{want: []string{"delete Secret: done"}, again: always, unwatched: true}, remove)
	with("secret-delete-hidden", hidden, ownWrite{want: []string{"delete Secret: done"}, unwatched: true}, remove)
	with("secret-hide-and-delete", shown, ownWrite{want: []string{"update Secret: done", "delete Secret: done"}, again: always, unwatched: true},
		func(ctx context.Context, w *writing, s *corev1.Secret, c client) (metav1.Object, error) {
			if _, err := update(hidden)(ctx, w, s, c); err != nil {
				return nil, err
			}
			return remove(ctx, w, s, c)
		})
	with("secret-delete-collection", shown, ownWrite{want: []string{"deletecollection Secret: done"}, again: perhaps, unwatched: true},
		func(ctx context.Context, w *writing, _ *corev1.Secret, c client) (metav1.Object, error) {
			return nil, c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + w.name})
		})
	return cases
}

// unknownWrites returns writes of objects that no informer shows.
func unknownWrites() map[string]ownWrite {
	return map[string]ownWrite{
		"lease": {
			unwatched: true,
			want:      []string{"create leases: done", "update leases: done", "delete leases: done"},
			write: func(ctx context.Context, w *writing) (metav1.Object, error) {
				leases := w.own.CoordinationV1().Leases(w.namespace)
				lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: w.meta}, metav1.CreateOptions{})
				if err != nil {
					return nil, err
				}
				lease.Spec.HolderIdentity = new("me")
				if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
					return nil, err
				}
				return nil, leases.Delete(ctx, w.name, metav1.DeleteOptions{})
			},
		},
		"stateful-set": { // of a group that is known
			resource: schema.GroupVersionResource{}, unwatched: true,
			want: []string{"create StatefulSet: done", "delete StatefulSet: done"},
			write: func(ctx context.Context, w *writing) (metav1.Object, error) {
				sets := w.own.AppsV1().StatefulSets(w.namespace)
				spec := w.deployment().Spec
				if _, err := sets.Create(ctx, &appsv1.StatefulSet{ObjectMeta: w.meta, Spec: appsv1.StatefulSetSpec{
					Selector: spec.Selector, Template: spec.Template,
				}}, metav1.CreateOptions{}); err != nil {
					return nil, err
				}
				return nil, sets.Delete(ctx, w.name, metav1.DeleteOptions{})
			},
		},
	}
}

func (w *writing) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": w.name}
	return &appsv1.Deployment{ObjectMeta: w.meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: w.pod().Spec},
	}}
}

func (w *writing) pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: w.meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func (w *writing) secret(labels map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: w.meta, StringData: map[string]string{"a": "b"}}
	s.Labels = labels
	return s
}

// applied returns a configuration with the fields that an operator would set, and no others.
func (w *writing) applied(replicas int32) *appsv1apply.DeploymentApplyConfiguration {
	labels := map[string]string{"app": w.name}
	owner := w.meta.OwnerReferences[0]
	return appsv1apply.Deployment(w.name, w.namespace).
		WithLabels(map[string]string{"replicas": fmt.Sprint(replicas)}).
		WithOwnerReferences(metav1apply.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).
			WithName(owner.Name).WithUID(owner.UID).WithController(true)).
		WithSpec(appsv1apply.DeploymentSpec().WithReplicas(replicas).
			WithSelector(metav1apply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1apply.PodTemplateSpec().WithLabels(labels).
				WithSpec(corev1apply.PodSpec().WithContainers(corev1apply.Container().WithName("c").WithImage("other")))))
}
