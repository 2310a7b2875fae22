package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// NewCache returns a cache that keeps encoded objects. It is a cache.NewCacheFunc, for the NewCache of manager.Options
// and cluster.Options. It has the options of cache.New, except for NewInformer, which is an error.
//
// Every read decodes a new object, which belongs to the caller. UnsafeDisableDeepCopy changes nothing therefore.
func NewCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	switch {
	case config == nil:
		return nil, errors.New("new cache: the rest.Config is nil")
	case opts.NewInformer != nil:
		return nil, errors.New("new cache: Options.NewInformer is set, but this cache has its own informers")
	}
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	var err error
	if opts.HTTPClient == nil {
		if opts.HTTPClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("new cache: make an HTTP client: %w", err)
		}
	}
	if opts.Mapper == nil {
		if opts.Mapper, err = apiutil.NewDynamicRESTMapper(config, opts.HTTPClient); err != nil {
			return nil, fmt.Errorf("new cache: make a RESTMapper: %w", err)
		}
	}
	f := &informers{
		scheme: opts.Scheme, mapper: opts.Mapper, logger: slog.New(logr.ToSlogHandler(ctrllog.Log.WithName("cache"))),
	}
	if f.config, err = connection(config, opts.HTTPClient); err != nil {
		return nil, fmt.Errorf("new cache: %w", err)
	}
	// controller-runtime's cache makes no requests: see describe.
	opts.NewInformer, opts.HTTPClient = f.newInformer, &http.Client{Transport: recorder{}}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS, unlimited.RateLimiter = -1, nil
	made, err := cache.New(unlimited, opts)
	if err != nil {
		return nil, err // of controller-runtime, unchanged
	}
	return &reads{made}, nil
}

// connection returns a config for kube.Connect that sends its requests with the transport of c.
func connection(config *rest.Config, c *http.Client) (*rest.Config, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the URL of the API server: %w", err)
	}
	transport := c.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return &rest.Config{
		Host: server.String(), Transport: transport, UserAgent: config.UserAgent,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: config.AcceptContentTypes, ContentType: config.ContentType,
		},
		QPS: config.QPS, Burst: config.Burst, RateLimiter: config.RateLimiter, Timeout: config.Timeout,
		WarningHandler: config.WarningHandler, WarningHandlerWithContext: config.WarningHandlerWithContext,
	}, nil
}

// reads passes reads on to controller-runtime's cache. The objects of our informers are copies, so it forbids another
// copy. It passes the label selector and the limit of a list on to the informer as a requirement on a field, because
// controller-runtime would otherwise select and limit after everything is decoded, and ignore objects that cannot be
// decoded.
type reads struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *reads) NeedLeaderElection() bool { return false }

// Get implements client.Reader.
func (r *reads) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	all := append(append([]client.GetOption{}, opts...), client.UnsafeDisableDeepCopy)
	return r.Cache.Get(ctx, key, obj, all...)
}

// List implements client.Reader.
func (r *reads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(append(append([]client.ListOption{}, opts...), client.UnsafeDisableDeepCopy))
	if options.FieldSelector == nil {
		query := "0/" // controller-runtime selects and limits
		if text, ok := textOf(options.LabelSelector); ok {
			query = fmt.Sprintf("%d/%s", options.Limit, text)
		}
		options.FieldSelector = fields.OneTermEqualSelector(queryField, query)
	}
	return r.Cache.List(ctx, list, &options)
}

// textOf returns the text that labels.Parse turns into the same selector. ok is false if there is none: for a value
// that no label can have, which labels.Parse rejects, and for a selector of another type.
func textOf(selector labels.Selector) (text string, ok bool) {
	if selector == nil {
		return "", true
	}
	if reflect.TypeOf(selector) != reflect.TypeOf(labels.NewSelector()) {
		return "", false
	}
	parsed, err := labels.Parse(selector.String())
	if err != nil {
		return "", false
	}
	given, _ := selector.Requirements()
	again, _ := parsed.Requirements()
	return selector.String(), slices.EqualFunc(given, again, labels.Requirement.Equal)
}

// informers makes the informers of one cache.
type informers struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	config *rest.Config
	logger *slog.Logger
}
