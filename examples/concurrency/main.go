// Command concurrency shows the effect of Workers: up to this number of ConfigMaps are handled at the same time, but
// never the same ConfigMap twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "concurrency:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("concurrency", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps")
	workers := flags.Int("workers", 3, "number of ConfigMaps that are handled at the same time")
	work := flags.Duration("work", time.Second, "duration of the handler")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	slow := &slowHandler{work: *work, out: out, busy: map[kube.Key]int{}}
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name:      "concurrency",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, informer.Selection{Namespaces: []string{*namespace}}),
		Handler:   slow.handle,
		Workers:   *workers,
		Logger:    slog.New(slog.NewTextHandler(out, nil)),
	})
	if err != nil {
		return err
	}
	if err := ctrl.Run(ctx); err != nil {
		return err
	}
	// Run has returned, so no handler runs, so the counters are final.
	fmt.Fprintf(out, "at most %d objects at once, at most %d times the same one\n", slow.most, slow.mostOfOne)
	return nil
}

// slowHandler takes some time, and counts the concurrent calls. Several workers call it at the same time, so shared
// data needs a lock.
type slowHandler struct {
	// Immutable.
	work time.Duration
	out  io.Writer

	mu        sync.Mutex
	busy      map[kube.Key]int // guarded by mu; running calls
	total     int              // guarded by mu
	most      int              // guarded by mu
	mostOfOne int              // guarded by mu
}

// handle is the controller.Handler.
func (h *slowHandler) handle(ctx context.Context, configMap *corev1.ConfigMap) error {
	key := kube.KeyOf(configMap)
	h.step(key, +1, "begin "+configMap.ResourceVersion)
	defer h.step(key, -1, "end")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.work):
		return nil
	}
}

func (h *slowHandler) step(key kube.Key, by int, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[key] += by
	h.total += by
	h.most = max(h.most, h.total)
	h.mostOfOne = max(h.mostOfOne, h.busy[key])
	fmt.Fprintf(h.out, "%d at work: %s %s\n", h.total, key, what)
}
