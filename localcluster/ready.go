package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// readyPoll is how often readiness is looked at.
const readyPoll = 50 * time.Millisecond

// check returns nil when what it looks at is ready, else what is missing.
type check func(context.Context, kubernetes.Interface) error

// waitFor returns nil once the check passes; an error if that takes longer than
// the ready timeout, or ctx ends, or the component does. It also does what run does
// otherwise: look after the other components.
func (s *supervisor) waitFor(ctx context.Context, component string, ready check) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.ReadyTimeout, errNotReady)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	var missing error
	for {
		switch err := ready(ctx, client); {
		case err == nil:
			return nil
		case ctx.Err() == nil || missing == nil:
			missing = err // and not that the last look was cut short
		}
		select {
		case <-ticker.C:
		case <-s.ended:
			// A component that cannot start is not started again and again.
			if err := s.buryDead(component); err != nil {
				return err
			}
		case <-s.revive:
			if component == componentAPIServer {
				s.revive = nil // without a server they would die again; start starts them next
				continue
			}
			if err := s.reviveDead(); err != nil {
				return err
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errNotReady) {
				return fmt.Errorf("waiting for %s: %w", component, cause)
			}
			return fmt.Errorf("waiting for %s: %w within %v: %w; where the machine is only slow, raise the ready timeout%s",
				component, errNotReady, s.opts.ReadyTimeout, missing, s.lastLogs())
		}
	}
}

var errNotReady = errors.New("not ready")

// client returns one of the administrator, without a limit: it is used at our pace.
func (s *supervisor) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.folder.path, adminFile))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the administrator's client: %w", err)
	}
	return client, nil
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
	if failed := failedChecks(string(body)); err != nil && failed != "" {
		return fmt.Errorf("/readyz says %w: %s", err, failed)
	}
	if err != nil {
		return fmt.Errorf("/readyz says %w", err)
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

// controllersAct waits for the account without which no Pod can be made in the
// default namespace, and for the ConfigMap with the cluster's authority that
// kube-controller-manager puts into every namespace. In a cluster that is not new
// both prove nothing, so the ConfigMap is deleted there once, in a namespace where
// nobody looks, and must come back.
//
// Nothing is asked of the scheduler: the sign of life would be a Pod, which
// everybody sees who watches Pods. If it ends, it is started again.
func controllersAct(old bool) check {
	deleted := types.UID("")
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("the default service account is not there: %w", err)
		}
		const name = "kube-root-ca.crt"
		maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		found, err := maps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("kube-controller-manager has not yet made the ConfigMap %s/%s: %w", metav1.NamespaceSystem, name, err)
		}
		if !old || (deleted != "" && found.UID != deleted) {
			return nil
		}
		if err := maps.Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(found.UID))); err != nil {
			return fmt.Errorf("deleting the ConfigMap %s/%s, to see that it comes back: %w", metav1.NamespaceSystem, name, err)
		}
		deleted = found.UID
		return fmt.Errorf("kube-controller-manager has not yet made the ConfigMap %s/%s again", metav1.NamespaceSystem, name)
	}
}

// nodesReady waits for n nodes that the scheduler would use: ready, and without
// the taint that a new node has until a controller has seen it ready. That one of
// their leases was renewed since then shows that this is not only how they were
// left.
func nodesReady(n int, since time.Time) check {
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
			return fmt.Errorf("ready nodes are %d of %d", ready, n)
		}
		leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing the leases of nodes: %w", err)
		}
		for _, lease := range leases.Items {
			if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since) {
				return nil
			}
		}
		return errors.New("no node has renewed its lease")
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
