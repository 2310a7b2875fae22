package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// Addresses in the status of simulated Nodes and Pods. They do not exist.
const (
	nodeIP   = "10.1.0.1"
	podRange = "10.2.0.0/16"
)

// providerPrefix marks the nodes that localcluster created. Their number follows it.
const providerPrefix = "localcluster://node/"

// stages are kwok's state transitions for Nodes and Pods.
//
//go:embed stages/stages.yaml
var stages []byte

// nodes is the component "nodes": it creates the Node objects, and runs kwok, which simulates the kubelets. It blocks.
func nodes(ctx context.Context, s settings) error {
	kubeconfig := componentKubeconfig("nodes")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Clean(kubeconfig))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the nodes: %w", err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client of the nodes: %w", err)
	}
	if err := createNodes(ctx, client, s.Nodes); err != nil {
		return err
	}
	const stagesFile = "stages.yaml"
	if err := os.WriteFile(stagesFile, stages, 0o600); err != nil {
		return fmt.Errorf("writing kwok's stages: %w", err)
	}
	// Kwok also reads a configuration from the user's home unless this variable is set, and it reads flags from os.Args
	// twice.
	if err := os.Setenv("KWOK_WORKDIR", "."); err != nil {
		return fmt.Errorf("setting kwok's folder: %w", err)
	}
	os.Args = []string{
		"kwok", "--config=" + stagesFile, "--kubeconfig=" + kubeconfig, "--manage-all-nodes=true",
		"--node-port=0", // otherwise it would listen on all addresses
		fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds(s.Nodes)),
		"--node-ip=" + nodeIP, "--cidr=" + podRange,
	}
	if !s.Verbose {
		os.Args = append(os.Args, "--v=WARN") // otherwise it would log every Pod and every lease
	}
	global := pflag.NewFlagSet("global", pflag.ContinueOnError)
	global.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ = log.InitFlags(ctx, global)
	ctx, err = kwokconfig.InitFlags(ctx, global)
	if err != nil {
		return fmt.Errorf("reading kwok's stages: %w", err)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(global)
	// Kubernetes is linked into the same binary and defines --version with another type, which makes cobra panic.
	command.Version = ""
	return runCommand(ctx, command, os.Args[1:]...)
}

// leaseSeconds returns the duration of a lease if there are n nodes. Kwok renews leases four times in that duration,
// and after a restart the first renewal shows that it works again (ready.go). Renewals are every 2 s, or less often
// with many nodes to reduce the load on the server.
func leaseSeconds(n int) int { return max(8, min(n, 40)) }

// createNodes creates the missing nodes among node-0 to node-(n-1).
func createNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	if err := deleteLeases(ctx, client.CoordinationV1().Leases(corev1.NamespaceNodeLease)); err != nil {
		return fmt.Errorf("deleting the leases of nodes of an earlier run: %w", err)
	}
	for i := range n {
		node := newNode(i)
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the node %s: %w", node.Name, err)
		}
	}
	return nil
}

// deleteLeases deletes the leases of an earlier run. Kwok ignores nodes whose lease another kwok holds, until it
// expires. In this cluster that can only be a dead one.
//
// It returns when the server's cache has no leases either. Kwok lists and watches with resource version 0: both begin
// with the state of that cache, and the watch does not send earlier deletions. A lease that the cache loses between the
// list and the watch would stay in kwok, which would update it for ever without success.
func deleteLeases(ctx context.Context, leases coordinationclient.LeaseInterface) error {
	if err := leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := leases.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(list.Items) == 0, err
	})
}

// removeNodes deletes the nodes of an earlier run with more nodes. It keeps nodes that localcluster did not create.
func removeNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes of an earlier run: %w", err)
	}
	for _, node := range list.Items {
		number, ours := strings.CutPrefix(node.Spec.ProviderID, providerPrefix)
		if i, err := strconv.Atoi(number); !ours || err != nil || i < n {
			continue
		}
		err := client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the node %s of an earlier run: %w", node.Name, err)
		}
	}
	return nil
}

func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
		}},
		Spec:   corev1.NodeSpec{ProviderID: providerPrefix + strconv.Itoa(i)},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
