package main

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestFailedChecks(t *testing.T) {
	t.Parallel()
	body := "[+]ping ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n[+]etcd ok\nreadyz check failed\n"
	if got, want := failedChecks(body), "poststarthook/rbac/bootstrap-roles failed: reason withheld"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func rootConfigMap(uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-root-ca.crt", UID: uid}}
}

func TestControllersMustRecreateConfigMapInOldData(t *testing.T) {
	t.Parallel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	ctx := t.Context()

	client := fake.NewClientset(account, rootConfigMap("1"))
	if err := controllersAct(false)(ctx, client); err != nil {
		t.Errorf("new data: %v", err)
	}
	ready := controllersAct(true)
	for range 3 {
		if err := ready(ctx, client); err == nil || !strings.Contains(err.Error(), "ConfigMap kube-system/kube-root-ca.crt") {
			t.Fatalf("old data, no controller runs: %v", err)
		}
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, rootConfigMap("2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ready(ctx, client); err != nil {
		t.Errorf("after the ConfigMap was created again: %v", err)
	}
}

func TestNodesAreReadyAfterLeaseRenewal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		condition corev1.ConditionStatus
		taints    []corev1.Taint
		renewed   time.Time
		want      string
	}{
		"ready":             {corev1.ConditionTrue, nil, now.Add(time.Second), ""},
		"lease not renewed": {corev1.ConditionTrue, nil, now.Add(-time.Second), "no node has renewed its lease"},
		"not ready":         {corev1.ConditionFalse, nil, now.Add(time.Second), "0 of 1 nodes are ready"},
		"taint not removed": {corev1.ConditionTrue, []corev1.Taint{{Key: corev1.TaintNodeNotReady}}, now.Add(time.Second), "0 of 1 nodes are ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(0)
			node.Spec.Taints = test.taints
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.condition}}
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name},
				Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: test.renewed}},
			}
			err := nodesReady(1, now)(t.Context(), fake.NewClientset(node, lease))
			if got := errorText(err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestForeignNodesAreKept(t *testing.T) {
	t.Parallel()
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-7"}}
	client := fake.NewClientset(newNode(0), newNode(1), newNode(2), theirs)
	if err := removeNodes(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, node := range list.Items {
		left = append(left, node.Name)
	}
	if got, want := strings.Join(left, " "), "node-0 node-7"; got != want {
		t.Errorf("remaining nodes are %s, want %s", got, want)
	}
}
