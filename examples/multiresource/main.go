// Command multiresource has one Handler and two controllers: one for Services, one for ConfigMaps. Only the metadata of
// both is fetched and cached.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "multiresource:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("multiresource", flag.ExitOnError)
	namespace := flags.String("namespace", "default", "the namespace of the objects")
	resync := flags.Duration("resync", time.Minute, "interval in which each Service is handled again")
	var options manager.Options
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	// Both controllers have the same Handler. Metadata-only objects (metav1.PartialObjectMetadata) can represent any
	// kind.
	newController := func(name, kind string, resync time.Duration) (manager.Runner, error) {
		return controller.New(controller.Config[*metav1.PartialObjectMetadata]{
			Name: name,
			Retriever: informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{
				Kind:       corev1.SchemeGroupVersion.WithKind(kind),
				Namespaces: []string{*namespace},
			}),
			Handler: func(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
				run, _ := controller.RunFrom(ctx)
				fmt.Fprintf(out, "%s: %s (%s)\n", run.Controller, kube.KeyOf(obj), run.Causes)
				return nil
			},
			ResyncInterval: resync,
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
	m, err := options.New(cluster,
		manager.Config{Runnables: []manager.Runnable{{Runner: services}, {Runner: configMaps}}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
