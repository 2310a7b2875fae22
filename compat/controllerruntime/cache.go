package controllerruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// NewCache returns a cache that keeps encoded objects. It is a cache.NewCacheFunc, for the NewCache of manager.Options
// and cluster.Options. It has the options of cache.New, except for NewInformer, which is an error.
//
// Every read returns an object that belongs to the caller. UnsafeDisableDeepCopy changes nothing.
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
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
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
	factory, err := newInformerFactory(config, opts)
	if err != nil {
		return nil, fmt.Errorf("new cache: %w", err)
	}
	// controller-runtime's cache makes no requests: see informerFactory.selectionOf.
	opts.NewInformer, opts.HTTPClient = factory.newInformer, &http.Client{Transport: recorder{}}
	config.QPS, config.RateLimiter = -1, nil
	selecting, err := cache.New(config, opts)
	if err != nil {
		return nil, err // of controller-runtime, unchanged
	}
	return &encodedCache{selecting, factory}, nil
}

// encodedCache passes reads on to controller-runtime's cache. The objects of our informers are copies, so it forbids
// another copy. It passes the label selector and the limit of a list on to the informer as a requirement on a field,
// because controller-runtime would otherwise select and limit after everything is decoded, and ignore objects that
// cannot be decoded.
type encodedCache struct {
	cache.Cache

	factory *informerFactory
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *encodedCache) NeedLeaderElection() bool { return false }

// Get implements client.Reader.
func (c *encodedCache) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	return c.Cache.Get(ctx, key, obj, append(slices.Clip(opts), client.UnsafeDisableDeepCopy)...)
}

// List implements client.Reader.
func (c *encodedCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(append(slices.Clip(opts), client.UnsafeDisableDeepCopy))
	if options.FieldSelector == nil {
		query := "0/" // controller-runtime selects and limits
		if text, ok := textOf(options.LabelSelector); ok {
			query = fmt.Sprintf("%d/%s", options.Limit, text)
		}
		options.FieldSelector = fields.OneTermEqualSelector(queryField, query)
	}
	return c.Cache.List(ctx, list, &options)
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
