package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// Addresses that simulated Nodes and Pods say they have. Nothing answers there.
const (
	nodeIP   = "10.1.0.1"
	podRange = "10.2.0.0/16"
)

// providerPrefix marks the nodes that were made here, before their number.
const providerPrefix = "localcluster://node/"

// stages tell kwok which life Nodes and Pods lead.
//
//go:embed stages/stages.yaml
var stages []byte

// nodes is the component "nodes": it makes the Node objects and then lets kwok
// play the kubelets. It blocks.
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
	// Kwok also reads a configuration of the user's home, unless told of another
	// home; and it reads flags from os.Args twice.
	if err := os.Setenv("KWOK_WORKDIR", "."); err != nil {
		return fmt.Errorf("setting kwok's folder: %w", err)
	}
	os.Args = []string{
		"kwok", "--config=" + stagesFile, "--kubeconfig=" + kubeconfig, "--manage-all-nodes=true",
		"--node-port=0", // else it would serve on all addresses
		fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds(s.Nodes)),
		"--node-ip=" + nodeIP, "--cidr=" + podRange,
	}
	if !s.Verbose {
		os.Args = append(os.Args, "--v=WARN") // else every Pod and every lease is a line
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
	// Kubernetes, linked into the same binary, has a --version of another type,
	// over which cobra would stumble.
	command.Version = ""
	return runCommand(ctx, command, os.Args[1:]...)
}

// leaseSeconds is how long the lease of one of n nodes lasts. Kwok renews it four
// times in that time, and the first renewal shows after a restart that it is back
// (ready.go): every 2 s, and with many nodes more seldom, to keep the server free.
func leaseSeconds(n int) int { return max(8, min(n, 40)) }

// createNodes makes node-0 to node-(n-1), those that do not exist yet.
func createNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	// Kwok leaves nodes alone whose lease another kwok has, until it has run out:
	// here that can only be one that is dead.
	err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
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

// removeNodes deletes the nodes that an earlier run with more of them has made.
// It leaves nodes alone that were not made here.
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
