package controllerruntime

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/kube"
)

// NewClient returns client.New's client, and reports its requests to the controllers of NewControllerManagedBy: a run
// then lists its writes, and the next run of its key begins when the informers of NewCache show them. It is a
// client.NewClientFunc, for the NewClient of manager.Options and cluster.Options.
func NewClient(config *rest.Config, opts client.Options) (client.Client, error) {
	if config == nil {
		return nil, errors.New("new client: the rest.Config is nil")
	}
	var err error
	if opts.HTTPClient == nil {
		if opts.HTTPClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("new client: make an HTTP client: %w", err)
		}
	}
	observed, err := connection(config, opts.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	cluster, err := kube.Connect(observed)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	copied := *opts.HTTPClient // with its time-out
	copied.Transport = cluster.HTTPClient().Transport
	opts.HTTPClient = &copied
	c, err := client.New(config, opts)
	if err != nil {
		return nil, err // of controller-runtime, unchanged
	}
	return &observedClient{c, cluster}, nil
}

// observedClient is a client whose requests go through a kube.Cluster.
type observedClient struct {
	client.Client

	cluster *kube.Cluster
}

// connection returns a config of a kube.Cluster that uses the transport of an HTTP client. It has no limits.
func connection(config *rest.Config, through *http.Client) (*rest.Config, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the URL of the API server: %w", err)
	}
	connection := &rest.Config{
		Host: server.String(), Transport: through.Transport,
		UserAgent: cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent()),
	}
	if connection.Transport == nil {
		connection.Transport = http.DefaultTransport
	}
	return connection, nil
}
