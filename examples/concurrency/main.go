// Command concurrency shows the effect of Workers: up to this number of ConfigMaps are handled at the same time, but
// never the same ConfigMap twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "concurrency:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("concurrency", flag.ExitOnError)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps")
	workers := flags.Int("workers", 3, "number of ConfigMaps that are handled at the same time")
	work := flags.Duration("work", time.Second, "duration of the handler")
	var options manager.Options
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	slow := &slowHandler{work: *work, out: out, busy: map[kube.Key]int{}}
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "concurrency",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster,
			kube.Selection{Namespaces: []string{*namespace}}),
		Handler: slow.handle,
		Workers: *workers,
	})
	if err != nil {
		return err
	}
	m, err := options.New(cluster, manager.Config{Runnables: []manager.Runnable{{Runner: ctrl}}})
	if err != nil {
		return err
	}
	if err := m.Run(ctx); err != nil {
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
