package localcluster

import (
	"context"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podTemplate returns a template without grace period: the namespace controller waits for half of it before it checks a
// Pod again.
func podTemplate(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 restart,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: podTemplate(name, corev1.RestartPolicyAlways),
		},
	}
}

func TestControllersAndNodes(t *testing.T) {
	t.Parallel()
	cluster := start(t, Config{Nodes: 1})
	client := clientFor(t, cluster.RESTConfig())

	t.Run("a Deployment gets a ReplicaSet and running Pods", func(t *testing.T) { testDeployment(t, client) })
	t.Run("a StatefulSet gets its Pods", func(t *testing.T) { testStatefulSet(t, client) })
	t.Run("a Job completes", func(t *testing.T) { testJob(t, client) })
	t.Run("dependents of a deleted object are deleted", func(t *testing.T) { testGarbageCollection(t, client) })
	t.Run("the deletion of a namespace finishes", func(t *testing.T) { testNamespaceDeletion(t, client) })
	t.Run("controllers survive a restart of the server", func(t *testing.T) {
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		makeDeployment(t, client, "default", "after-restart")
	})
	t.Run("killed components are restarted", func(t *testing.T) { testRevival(t, cluster, client) })
}

// makeDeployment creates a Deployment, and returns when its Pods are available.
func makeDeployment(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	deployments := client.AppsV1().Deployments(namespace)
	if _, err := deployments.Create(t.Context(), deployment(name, 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment is available", func(ctx context.Context) (bool, error) {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 2, err
	})
}

func testDeployment(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	makeDeployment(t, client, "default", "web")
	sets, err := client.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(sets.Items) != 1 {
		t.Fatalf("ReplicaSets: %v, %v; want one", sets, err)
	}
	for _, entry := range sets.Items[0].ManagedFields {
		if entry.Manager != "kube-controller-manager" {
			t.Errorf("%s manages fields of the ReplicaSet, as no real cluster has it", entry.Manager)
		}
	}
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 2 {
		t.Fatalf("Pods: %v, %v; want two", pods, err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != "node-0" || pod.Status.PodIP == "" || pod.Status.HostIP == "" {
			t.Errorf("Pod %s is %s on %q with IP %q on %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.Status.PodIP, pod.Status.HostIP)
		}
	}
}

func testStatefulSet(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	sets := client.AppsV1().StatefulSets("default")
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: podTemplate("db", corev1.RestartPolicyAlways),
		},
	}
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the StatefulSet is ready", func(ctx context.Context) (bool, error) {
		got, err := sets.Get(ctx, "db", metav1.GetOptions{})
		return err == nil && got.Status.ReadyReplicas == 2, err
	})
}

// testRevival kills all components except the API server: more than one, and the nodes, which must take over the leases
// of the dead ones.
func testRevival(t *testing.T, cluster *Cluster, client kubernetes.Interface) {
	t.Helper()
	before := processes(t.Context(), t, cluster)
	for name, pid := range before {
		if name == "apiserver" {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	// A restart must handle the end of other components while it waits.
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all components are restarted", func(ctx context.Context) (bool, error) {
		now := processes(ctx, t, cluster)
		for name, pid := range before {
			if now[name] == 0 || now[name] == pid {
				return false, nil
			}
		}
		return true, nil
	})
	makeDeployment(t, client, "default", "after-revival")
}

func testJob(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	jobs := client.BatchV1().Jobs("default")
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec:       batchv1.JobSpec{Template: podTemplate("once", corev1.RestartPolicyNever)},
	}
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Job is complete", func(ctx context.Context) (bool, error) {
		got, err := jobs.Get(ctx, "once", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return got.Status.Succeeded == 1, nil
			}
		}
		return false, nil
	})
}

func testGarbageCollection(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, maps := t.Context(), client.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(ctx, configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := configMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := maps.Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owned object is gone", func(ctx context.Context) (bool, error) {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func testNamespaceDeletion(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, namespaces := t.Context(), client.CoreV1().Namespaces()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	if _, err := namespaces.Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace has its service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts("short-lived").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	makeDeployment(t, client, "short-lived", "web")
	if err := namespaces.Delete(ctx, "short-lived", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, "short-lived", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
