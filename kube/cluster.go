package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// ErrNotServed is returned for a kind that the cluster does not serve, most often because its CustomResourceDefinition
// is not installed (yet).
var ErrNotServed = errors.New("kind not served by the cluster")

// Cluster is a connection to one API server, with registered Go types and a cache of discovered kinds.
//
// It makes requests only on behalf of its methods and clients, has no watches and no cache of objects, and needs no
// Close. It is safe for concurrent use. A process usually has one Cluster, so that all clients share its HTTP
// connections.
type Cluster struct {
	// Immutable after Connect.
	config   *rest.Config
	http     *http.Client
	server   string // URL of the API server
	basePath string // of that URL, if the API server is behind a proxy
	scheme   *runtime.Scheme
	scopes   map[schema.GroupVersionKind]bool // that Go types declare
	codecs   serializer.CodecFactory

	limits *writeLimits
	hidden *apiobject.HiddenFields
	strays *strays
	// What receives measurements and Events unless a part is given others; see apiobject.ObserversOf.
	observers *apiobject.Observers
	limiter   flowcontrol.RateLimiter         // of the requests; nil without a limit
	timeout   time.Duration                   // of the requests, after the limits; 0 without one
	guard     *usercode.Guard                 // calls the functions of the user's config
	term      atomic.Pointer[leadership.Term] // of the last request
	logger    atomic.Pointer[slog.Logger]     // of SetLogger; nil: slog.Default()
	// of SetNamespaces; nil or empty: all
	namespaces atomic.Pointer[[]string]

	mu        sync.Mutex
	resources map[schema.GroupVersion][]metav1.APIResource // guarded by mu; Forget removes entries
	elsewhere map[schema.GroupVersionKind]string           // the other version in which a kind was found; guarded by mu
	clients   map[schema.GroupVersion]rest.Interface       // guarded by mu
}

// Resource describes how the API server serves a kind.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind's name in singular and CamelCase.
	Kind string
	// Namespaced reports whether objects of the kind have a namespace.
	Namespaced bool
}

// Connect returns a Cluster for the API server in config. It makes no request.
//
// The built-in kinds of Kubernetes (the types of k8s.io/api: Pods, Deployments, ...) are known. Functions in addTypes,
// usually the AddToScheme of an API package, register further types. Connect copies config. The default of its
// UserAgent is client-go's: the program's name, its version and its platform.
//
// There is no client-side rate limit unless QPS is above zero or RateLimiter is set, because API servers protect
// themselves with priority and fairness since Kubernetes 1.29 (KEP-1040), and client-go's default of 5 requests per
// second slows controllers down without a visible reason. The limit is one for all clients of the Cluster, also those
// made from RESTConfig, which contains no limit. These requests do not wait for it, because what they serve must work
// in a busy process: those of package leader for its lease; discovery; Events; reviews of tokens and of access.
//
// Timeout counts from the time when this limit and SetWriteLimit permit a request, for all these clients too.
// RESTConfig contains no Timeout. It does not end open watches, nor connections to Pods (exec, attach, portforward,
// proxy). It counts for each attempt: client-go's clients repeat a request up to 10 times after a Retry-After.
//
// Errors: a nil config, a config that is not valid for a client, a function in addTypes that is nil or returns an
// error; all errors at once.
func Connect(config *rest.Config, addTypes ...func(*runtime.Scheme) error) (*Cluster, error) {
	if config == nil {
		return nil, errors.New("connect to a cluster: the rest config is nil: kube.LoadConfig finds one")
	}
	scheme := runtime.NewScheme()
	var errs []error
	// Types that every API server uses besides objects: Status, lists of resources.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		errs = append(errs, fmt.Errorf("register the types of metadata: %w", err))
	}
	for i, add := range addTypes {
		if add == nil {
			errs = append(errs, fmt.Errorf("register types (function %d): it is nil", i+1))
		} else if err := add(scheme); err != nil {
			errs = append(errs, fmt.Errorf("register types (function %d): %w", i+1, err))
		}
	}
	config = rest.CopyConfig(config)
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	guard := usercode.NewGuard(slog.Default()) // until SetLogger
	c := &Cluster{
		config:    config,
		limiter:   takeLimiter(config),
		timeout:   config.Timeout,
		guard:     guard,
		scheme:    scheme,
		scopes:    declaredScopes(scheme),
		limits:    newWriteLimits(),
		hidden:    &apiobject.HiddenFields{},
		strays:    newStrays(),
		observers: &apiobject.Observers{},
		codecs:    serializer.NewCodecFactory(scheme),
		resources: map[schema.GroupVersion][]metav1.APIResource{},
		elsewhere: map[schema.GroupVersionKind]string{},
		clients:   map[schema.GroupVersion]rest.Interface{},
	}
	config.Timeout = 0 // an http.Client would count the wait for the limits
	config.Dial = guardedDial(config.Dial, guard)
	// The transport is set in the config, so that clients made from RESTConfig use it too.
	wrap := config.WrapTransport
	config.WrapTransport = func(base http.RoundTripper) http.RoundTripper { return newCallTransport(c, base, wrap) }
	var err error
	if c.http, err = rest.HTTPClientFor(withBufferedDial(config)); err != nil {
		errs = append(errs, fmt.Errorf("make an HTTP client for %s: %w", config.Host, err))
	} else {
		c.http.Transport = closableTransport{c.http.Transport, apiobject.NewClaims(), c.observers}
	}
	c.server, c.basePath = kubeconfig.Server(config)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	// An invalid host must be an error here, not at the first request.
	if _, err := c.RESTClient(schema.GroupVersion{Version: "v1"}); err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	return c, nil
}

// SetLogger sets the logger of everything that works with the Cluster: informers, controllers, clients, Events, leader
// election, webhook servers, and the Cluster itself. Call it before they are created: those that were created before
// keep their logger, of which it warns if informers, controllers, Retrievers or webhook servers were. manager.Options.
// Connect sets the logger of the program's flags.
func (c *Cluster) SetLogger(logger *slog.Logger) {
	c.logger.Store(logger)
	c.guard.SetLogger(c.Logger())
	if c.observers.HasParts() {
		c.Logger().Warn("logger set after other parts were created", "effect", "they keep their logger",
			"hint", "call Cluster.SetLogger, or manager.Options.Connect, before they are created")
	}
}

// Logger returns the logger of SetLogger. Without one, and for a nil Cluster, it returns slog.Default().
func (c *Cluster) Logger() *slog.Logger {
	if c != nil {
		if logger := c.logger.Load(); logger != nil {
			return logger
		}
	}
	return slog.Default()
}

// RESTConfig returns a copy of the cluster's config.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// HTTPClient returns the HTTP client that all clients of this cluster share. Pass it to client-go's
// NewForConfigAndClient to share its connections. Its CloseIdleConnections closes them when all clients have ended.
func (c *Cluster) HTTPClient() *http.Client { return c.http }

// Scheme returns the scheme with the types that addTypes has registered. It must not be changed. It does not contain
// the types of k8s.io/api, because every program would then link all of them.
func (c *Cluster) Scheme() *runtime.Scheme { return c.scheme }

// KindOf returns the kind of obj: the one in its TypeMeta, which unstructured and metadata-only objects have, otherwise
// the kind that its Go type is registered for, or the kind of a type of k8s.io/api.
func (c *Cluster) KindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	if usercode.IsNil(obj) {
		return schema.GroupVersionKind{}, errors.New("find the kind of an object: it is nil")
	}
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "" && kind.Version != "" {
		return kind, nil
	}
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return schema.GroupVersionKind{},
			fmt.Errorf("find the kind of a %T: it carries none: set its apiVersion and kind", obj)
	}
	kinds, _, err := c.scheme.ObjectKinds(obj)
	if err == nil {
		return kinds[0], nil
	}
	if kind, ok := apiobject.BuiltinKind(obj); ok {
		return kind, nil
	}
	return schema.GroupVersionKind{}, fmt.Errorf("find the kind of %T: %w: pass its AddToScheme to kube.Connect",
		obj, err)
}

// Resource returns how the API server serves kind. It caches results, but neither that a kind is missing nor that its
// scope is wrong, so that a definition that is installed or replaced later is found.
//
// Errors: ErrNotServed if the kind is not served; a scope other than the Go type declares (Scoped); otherwise the error
// of the request.
func (c *Cluster) Resource(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	gv := kind.GroupVersion()
	c.mu.Lock()
	known := c.resources[gv]
	c.mu.Unlock()
	if res, ok := findResource(known, kind); ok {
		if res, err := c.checkScope(kind, res); err == nil {
			return res, nil
		} // otherwise the definition may have been replaced since
	}
	list, err := c.resourcesOf(ctx, gv)
	switch {
	case apierrors.IsNotFound(err):
		list = &metav1.APIResourceList{}
	case err != nil:
		return Resource{}, fmt.Errorf("ask the cluster for the kinds of %s: %w", gv, err)
	}
	c.mu.Lock()
	c.resources[gv] = list.APIResources
	c.mu.Unlock()
	if res, ok := findResource(list.APIResources, kind); ok {
		return c.checkScope(kind, res)
	}
	return Resource{}, fmt.Errorf("kind %s in %s: %w: install its CustomResourceDefinition, or check the version",
		kind.Kind, gv, ErrNotServed)
}

// discoveryTimeout limits one discovery request for a group and version.
const discoveryTimeout = 30 * time.Second

// resourcesOf requests the resources of a group and version. It does not use client-go's discovery client, because that
// would link the OpenAPI libraries.
func (c *Cluster) resourcesOf(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	client, err := c.RESTClient(gv)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list := &metav1.APIResourceList{}
	return list, client.Get().AbsPath(apiPath(gv), gv.Group, gv.Version).Do(ctx).Into(list)
}

func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api"
	}
	return "/apis"
}

// Forget removes the discovered kinds of gv, so that the next Resource requests them again. Call it when a request for
// a known kind returns "not found", because its CustomResourceDefinition was deleted.
func (c *Cluster) Forget(gv schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.resources, gv)
}

// RESTClient returns a client for the registered types of gv. It prefers protobuf, and uses JSON if the server supports
// nothing else (custom resources).
//
// A handler's patch that is answered in protobuf causes another run of its key, unless an informer of the controller
// has the Go type of the object's kind and version: only that names the fields. Package client gets JSON, and needs
// none.
func (c *Cluster) RESTClient(gv schema.GroupVersion) (rest.Interface, error) {
	if err := apiobject.CheckSegments(gv.Group, gv.Version); err != nil {
		return nil, fmt.Errorf("make a REST client for %s: %w", strconv.Quote(gv.String()), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.clients[gv]; ok {
		return client, nil
	}
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = apiPath(gv)
	config.NegotiatedSerializer = c.codecs.WithoutConversion()
	if config.AcceptContentTypes == "" && config.ContentType == "" {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		config.ContentType = runtime.ContentTypeJSON
	}
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("make a REST client for %s: %w", gv, err)
	}
	c.clients[gv] = client
	return client, nil
}

func findResource(resources []metav1.APIResource, kind schema.GroupVersionKind) (Resource, bool) {
	for _, r := range resources {
		// A name with a slash is a subresource ("pods/status"), which may have the kind of its parent.
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			return Resource{
				GroupVersionResource: kind.GroupVersion().WithResource(r.Name),
				Kind:                 r.Kind,
				Namespaced:           r.Namespaced,
			}, true
		}
	}
	return Resource{}, false
}
