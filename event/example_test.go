package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Run the Recorder in its own goroutine and stop it after the controllers, so that it sends the events that they
// record while they stop.
func ExampleRecorder_Run() {
	server := newAPIServer()
	cluster, err := kube.Connect(&rest.Config{Host: "https://example.com", Transport: server}) // in a program: kube.LoadConfig
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := event.New(event.Config{Cluster: cluster, Controller: "shop-operator"})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A controller's Run, with Config.Events: events.
	control := func(context.Context) error {
		web := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web"}
		events.Event(web, corev1.EventTypeWarning, "Stalled", "Handle", "given up")
		return errors.New("a source has failed")
	}

	ctx := context.Background() // in a program: signal.NotifyContext
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	var recording sync.WaitGroup
	recording.Go(func() { _ = events.Run(sending) }) // waited for below
	err = control(ctx)
	stop()
	recording.Wait()

	fmt.Println(err)
	// Output:
	// a source has failed
}
