package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// readyPoll is how often readiness is looked at.
const readyPoll = 50 * time.Millisecond

// check returns nil when what it looks at is ready, else what is missing.
type check func(context.Context, kubernetes.Interface) error

// waitFor returns nil once the check passes; an error if that takes longer than
// the ready timeout, or a component that is needed for it ends, or ctx does.
func (s *supervisor) waitFor(ctx context.Context, what string, ready check) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.folder.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	config.QPS = -1 // no limit: it polls at its own pace
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client to wait for %s: %w", what, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.ReadyTimeout, fmt.Errorf("not ready within %v", s.opts.ReadyTimeout))
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		missing := ready(ctx, client)
		if missing == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-s.ended:
			// A component that cannot start is not started again and again.
			if err := s.firstDead(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w); where the machine is only slow, raise the ready timeout%s",
				what, context.Cause(ctx), missing, s.lastLogs())
		}
	}
}

func (s *supervisor) firstDead() error {
	for _, p := range s.processes {
		select {
		case <-p.done:
			return p.died()
		default:
		}
	}
	return nil
}

// lastLogs is what each component said last, for an error that does not know
// whose fault it is.
func (s *supervisor) lastLogs() string {
	var text strings.Builder
	for _, name := range s.components() {
		if p := s.processes[name]; p != nil {
			fmt.Fprintf(&text, "\n%s%s", name, p.lastLog())
		}
	}
	return text.String()
}

// apiServerReady asks the server itself.
func apiServerReady(ctx context.Context, client kubernetes.Interface) error {
	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("/readyz says %w %s", err, failedChecks(string(body)))
	}
	return nil
}

// failedChecks picks from the answer of /readyz the checks that failed.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	return strings.Join(failed, ", ")
}

// defaultServiceAccount waits for the account without which no Pod can be made
// in the default namespace: with it, the controllers are known to work.
func defaultServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the default service account is not there: %w", err)
	}
	return nil
}

// nodesReady waits for n nodes that the scheduler would use: ready, and without
// the taint that a new node has until a controller has seen it ready.
func nodesReady(n int) check {
	return func(ctx context.Context, client kubernetes.Interface) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		ready := 0
		for _, node := range list.Items {
			if isReady(node) {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d of %d nodes are ready", ready, n)
		}
		return nil
	}
}

func isReady(node corev1.Node) bool {
	isNotReady := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }
	if slices.ContainsFunc(node.Spec.Taints, isNotReady) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
