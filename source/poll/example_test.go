package poll_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// An inventory lists machines outside the cluster, and the Deployments that each machine serves. The controller runs
// for these Deployments when their machine is added, changed or removed.
func ExampleNew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	deployments := kindserver.New[*appsv1.Deployment](apitest.Deployments(), true)

	// The inventory answers after the handler has run, so that the output is always the same.
	inventory := make(chan []poll.Item, 1)
	web := []kube.Key{{Namespace: "shop", Name: "web"}}
	then := []func(){
		func() { inventory <- []poll.Item{{ID: "rack-1/m7", Version: "free", Keys: web}} },
		func() { inventory <- []poll.Item{{ID: "rack-1/m7", Version: "in use", Keys: web}} },
		func() { inventory <- nil },
		cancel,
	}
	machines := poll.New(poll.Config{
		Name:     "machines",
		Interval: time.Millisecond, // usually a minute
		Poller: poll.List(func(ctx context.Context) ([]poll.Item, error) {
			select {
			case items := <-inventory:
				return items, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
	})
	ctrl, err := controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "machines-of-deployments",
		Retriever: deployments,
		Handler: func(ctx context.Context, d *appsv1.Deployment) error {
			run, _ := controller.RunFrom(ctx)
			for _, cause := range run.Causes.List() {
				if cause.Type == controller.CauseTriggered {
					continue // the first poll has succeeded: it runs each object that has not run since
				}
				fmt.Printf("%s: %s\n", d.Name, cause)
				then[0]()
				then = then[1:]
			}
			return nil
		},
		Sources: []controller.Source{machines},
		Logger:  logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	deployments.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web: listed
	// web: machines: listed (rack-1/m7)
	// web: machines: updated (rack-1/m7)
	// web: machines: deleted (rack-1/m7)
}

// answers are the responses of a server, in order; the last one is repeated.
type answers []string

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	body := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A change of a policy document affects every object; in a program, KeysOf would list an informer. The server sends no
// ETag, so the bodies are compared.
func ExampleHTTP() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	policy := poll.New(poll.Config{
		Name: "policy",
		Poller: poll.HTTP(poll.HTTPConfig{
			URL:    "https://example.com/policy?token=0815",
			Client: &http.Client{Transport: &answers{"allow", "allow", "allow", "deny"}}, // usually not set
		}),
		KeysOf:   func(poll.Item) []kube.Key { return []kube.Key{{Namespace: "shop", Name: "web"}} },
		Interval: time.Millisecond, // usually a minute
	})
	// A controller does this with its Sources.
	prepared, err := policy.Prepare(controller.Target{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := prepared.Start(ctx, func(key kube.Key, why controller.Trigger) {
		if why.All {
			return // objects that were handled before the first poll
		}
		fmt.Println(key, why.Type, why.Detail)
		if why.Type == controller.CauseUpdated {
			cancel()
		}
	})
	if err == nil {
		err = run()
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop/web listed https://example.com/policy
	// shop/web updated https://example.com/policy
}

// A handler reads a polled item. It may run before the first poll has succeeded: it then returns ErrNotPolled, and is
// called again after the first successful poll.
func ExampleSource_Item() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	deployments := kindserver.New[*appsv1.Deployment](apitest.Deployments(), true)
	deployments.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	prices := poll.New(poll.Config{
		Name:      "prices",
		KeepItems: true,
		Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			return []poll.Item{{ID: "web", Content: []byte("12 a month"), Keys: []kube.Key{{Namespace: "shop", Name: "web"}}}}, nil
		}),
	})
	ctrl, err := controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "prices-of-deployments",
		Retriever: deployments,
		Handler: func(_ context.Context, d *appsv1.Deployment) error {
			price, found, err := prices.Item(d.Name)
			if err != nil {
				return err
			}
			fmt.Println(d.Name, found, string(price.Content))
			cancel()
			return nil
		},
		Sources: []controller.Source{prices},
		Workers: 1,
		Logger:  logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: web true 12 a month
}
