// Command leaderelection prints the ConfigMaps and the Services of a namespace, with a controller for each kind, but
// only in one of its replicas: the one that holds the lease. Start it twice and end one of them: the other takes over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
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
	"github.com/evenkeel-go/evenkeel/leader"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leaderelection:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("leaderelection", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", connect.FlagUsage)
	namespace := flags.String("namespace", "default", "the namespace of the ConfigMaps, the Services and the lease")
	identity := flags.String("identity", "", "the name of this replica; default: a unique name")
	listen := flags.String("listen", "127.0.0.1:0", "the address of /readyz; by default a free port; in a Pod, use :8080")
	leaseDuration := flags.Duration("lease-duration", leader.DefaultLeaseDuration, "the maximum time without a leader after a crash")
	renewDeadline := flags.Duration("renew-deadline", leader.DefaultRenewDeadline, "the time after which a leader that cannot renew stops")
	retryPeriod := flags.Duration("retry-period", leader.DefaultRetryPeriod, "the time between two attempts to acquire or renew the lease")
	_ = flags.Parse(args) // exits on an error

	cluster, err := connect.Cluster(*kubeconfig)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{
		Cluster:       cluster,
		Namespace:     *namespace,
		Name:          "leaderelection-example",
		Identity:      *identity,
		LeaseDuration: *leaseDuration,
		RenewDeadline: *renewDeadline,
		RetryPeriod:   *retryPeriod,
	})
	if err != nil {
		return err
	}
	configMaps, err := newPrinter[*corev1.ConfigMap]("configmaps", cluster, elector, *namespace)
	if err != nil {
		return err
	}
	services, err := newPrinter[*corev1.Service]("services", cluster, elector, *namespace)
	if err != nil {
		return err
	}

	// region probe
	// The readiness probe of the Pod. A standby replica is ready too: its controllers do not run, so Controller.Ready
	// would always return an error.
	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := elector.ReadyWith(configMaps, services); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	// endregion
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("serve /readyz: %w: choose another address with --listen", err)
	}
	fmt.Printf("serving http://%s/readyz\n", listener.Addr())
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var serving sync.WaitGroup
	var serveErr error
	serving.Go(func() { // waited for below
		defer stop() // ends the program if the server fails
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			serveErr = err
		}
	})
	// region group
	// When ctx ends, the controllers let their handlers finish, and then Run releases the lease, so that the other
	// replica need not wait until it expires. When the lease is lost, handlers are cancelled at once. The function is
	// called again when this replica is the leader again.
	err = elector.Run(ctx, func(ctx context.Context) error {
		return runAll(ctx, configMaps.Run, services.Run)
	})
	// endregion
	closeErr := server.Close()
	serving.Wait()
	return errors.Join(err, closeErr, serveErr)
}

// region all
// runAll calls all functions and waits for them. When one returns, it cancels the others.
func runAll(ctx context.Context, runs ...func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(runs))
	var running sync.WaitGroup
	for i, run := range runs {
		running.Go(func() { // waited for below
			defer stop()
			errs[i] = run(ctx)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// endregion

// newPrinter returns a controller that prints the objects of one kind.
func newPrinter[T kube.Object](name string, cluster *kube.Cluster, elector *leader.Elector, namespace string) (*controller.Controller[T], error) {
	return controller.New(controller.Config[T]{
		Name:      name,
		Retriever: informer.RetrieveSelected[T](cluster, informer.Selection{Namespaces: []string{namespace}}),
		Handler: func(_ context.Context, obj T) error {
			fmt.Printf("%s handles %s %s/%s\n", elector.Status().Identity, name, obj.GetNamespace(), obj.GetName())
			return nil
		},
	})
}
