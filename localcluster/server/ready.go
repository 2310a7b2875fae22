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

// readyPoll is the interval of readiness checks.
const readyPoll = 50 * time.Millisecond

// check returns nil if its subject is ready, otherwise an error that says what is missing.
type check func(context.Context, kubernetes.Interface) error

// waitFor returns nil when the check passes. It returns an error after the ready timeout, when ctx ends, or when the
// component ends. Meanwhile it restarts other components that have ended, as run does.
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
			missing = err // not the error of a check that the timeout interrupted
		}
		select {
		case <-ticker.C:
		case <-s.ended:
			// A component that ends during its start is not restarted.
			if err := s.removeEnded(component); err != nil {
				return err
			}
		case <-s.restartTimer:
			if component == componentAPIServer {
				s.restartTimer = nil // without a server they would end again; the next start command starts them
				continue
			}
			if err := s.restartEnded(); err != nil {
				return err
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errNotReady) {
				return fmt.Errorf("waiting for %s: %w", component, cause)
			}
			return fmt.Errorf("waiting for %s: %w within %v: %w; if the machine is slow, increase the ready timeout%s",
				component, errNotReady, s.opts.ReadyTimeout, missing, s.lastLogs())
		}
	}
}

var errNotReady = errors.New("not ready")

// client returns a client with the administrator's credentials and without a rate limit, because the supervisor limits
// its own polls.
func (s *supervisor) client() (kubernetes.Interface, error) { return s.clientOf(s.folder.serverURL()) }

// clientOf is client for the API server at a URL.
func (s *supervisor) clientOf(url string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.folder.path, adminFile))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	config.Host, config.QPS = url, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the administrator's client: %w", err)
	}
	return client, nil
}

// lastLogs returns the last log lines of each component, for errors whose cause is unknown.
func (s *supervisor) lastLogs() string {
	var text strings.Builder
	for _, name := range s.components() {
		if p := s.processes[name]; p != nil {
			fmt.Fprintf(&text, "\n%s%s", name, p.lastLog())
		}
	}
	return text.String()
}

// apiServerReady checks /readyz.
func apiServerReady(ctx context.Context, client kubernetes.Interface) error {
	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if failed := failedChecks(string(body)); err != nil && failed != "" {
		return fmt.Errorf("/readyz: %w: %s", err, failed)
	}
	if err != nil {
		return fmt.Errorf("/readyz: %w", err)
	}
	return nil
}

// secondReady checks /readyz of the second API server.
func (s *supervisor) secondReady(ctx context.Context, _ kubernetes.Interface) error {
	client, err := s.clientOf(urlOf(s.folder.SecondPort))
	if err != nil {
		return err
	}
	return apiServerReady(ctx, client)
}

// failedChecks returns the failed checks in a response of /readyz.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	return strings.Join(failed, ", ")
}

// controllersAct waits for the default service account, which Pods in the default namespace need, and for the ConfigMap
// with the cluster's authority that kube-controller-manager creates in every namespace. In a cluster with old data both
// may be from an earlier run. The ConfigMap is therefore deleted once, in a namespace that users do not watch, and must
// be created again.
//
// The scheduler is not checked: that would need a Pod, which every watch of Pods would deliver. If the scheduler ends,
// it is restarted.
func controllersAct(old bool) check {
	deleted := types.UID("")
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("the default service account does not exist: %w", err)
		}
		const name = "kube-root-ca.crt"
		maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		found, err := maps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("kube-controller-manager has not created the ConfigMap %s/%s: %w", metav1.NamespaceSystem,
				name, err)
		}
		if !old || (deleted != "" && found.UID != deleted) {
			return nil
		}
		if err := maps.Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(found.UID))); err != nil {
			return fmt.Errorf("deleting the ConfigMap %s/%s, which must be created again: %w", metav1.NamespaceSystem,
				name, err)
		}
		deleted = found.UID
		return fmt.Errorf("kube-controller-manager has not created the ConfigMap %s/%s again",
			metav1.NamespaceSystem, name)
	}
}

// nodesReady waits for n nodes that the scheduler accepts: ready, and without the taint of a new node that no
// controller has seen ready. One of their leases must have been renewed after since, because the objects may be from an
// earlier run.
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
			return fmt.Errorf("%d of %d nodes are ready", ready, n)
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
