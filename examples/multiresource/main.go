// Command multiresource has one Handler and two controllers: one for Services, one for ConfigMaps. Only the metadata of
// both is fetched and cached.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/connect"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "multiresource:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("multiresource", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespace := flags.String("namespace", "default", "the namespace of the objects")
	resync := flags.Duration("resync", time.Minute, "interval in which each Service is handled again")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	// Both controllers have the same Handler. Metadata-only objects (metav1.PartialObjectMetadata) can represent any kind.
	newController := func(name, kind string, resync time.Duration) (runner, error) {
		return controller.New(controller.Config[*metav1.PartialObjectMetadata]{
			Name: name,
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, informer.Selection{
				Kind:       corev1.SchemeGroupVersion.WithKind(kind),
				Namespaces: []string{*namespace},
			}),
			Handler: func(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
				run, _ := controller.RunFrom(ctx)
				fmt.Fprintf(out, "%s: %s (%s)\n", run.Controller, kube.KeyOf(obj), run.Causes)
				return nil
			},
			ResyncInterval: resync,
			Logger:         slog.New(slog.NewTextHandler(out, nil)),
		})
	}
	services, err := newController("services", "Service", *resync)
	if err != nil {
		return err
	}
	configMaps, err := newController("configmaps", "ConfigMap", -1) // no resync
	if err != nil {
		return err
	}
	return runAll(ctx, services, configMaps)
}

type runner interface {
	Run(ctx context.Context) error
}

// runAll runs several controllers. When one of them ends, it stops the others, and returns when all have ended.
func runAll(ctx context.Context, runners ...runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(runners))
	for _, r := range runners {
		go func() { ended <- r.Run(ctx) }() // waited for below
	}
	var errs []error
	for range runners {
		errs = append(errs, <-ended)
		stop()
	}
	return errors.Join(errs...)
}
