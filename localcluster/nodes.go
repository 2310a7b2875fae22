package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// Addresses that simulated Nodes and Pods say they have. Nothing answers there.
const (
	nodeIP   = "10.1.0.1"
	podRange = "10.2.0.0/16"
)

// stages tell kwok which life Nodes and Pods lead.
//
//go:embed stages/stages.yaml
var stages []byte

// nodes is the component "nodes": it makes the Node objects and then lets kwok
// play the kubelets. It blocks.
func nodes(ctx context.Context, s settings) error {
	kubeconfig := componentKubeconfig("nodes")
	if err := createNodes(ctx, kubeconfig, s.Nodes); err != nil {
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
		"--node-lease-duration-seconds=40",
		"--node-ip=" + nodeIP, "--cidr=" + podRange,
	}
	global := pflag.NewFlagSet("global", pflag.ContinueOnError)
	global.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ = log.InitFlags(ctx, global)
	ctx, err := config.InitFlags(ctx, global)
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

// createNodes makes node-0 to node-(n-1), those that do not exist yet.
func createNodes(ctx context.Context, kubeconfig string, n int) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Clean(kubeconfig))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the nodes: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client of the nodes: %w", err)
	}
	for i := range n {
		node := newNode(fmt.Sprintf("node-%d", i))
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the node %s: %w", node.Name, err)
		}
	}
	return nil
}

func newNode(name string) *corev1.Node {
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
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
