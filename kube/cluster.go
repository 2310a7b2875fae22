package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// ErrNotServed says that the cluster has no such kind, most often because its
// CustomResourceDefinition is not installed (yet).
var ErrNotServed = errors.New("kind not served by the cluster")

// Cluster is a connection to one API server, together with the Go types that are
// known for it and what has been learnt about its kinds.
//
// It makes no request until somebody asks for something, keeps no watch and no
// cache of objects, and needs no Close. It is safe for concurrent use; one Cluster
// for a process is the usual case, and its HTTP connections are shared.
type Cluster struct {
	// Immutable after Connect.
	config   *rest.Config
	http     *http.Client
	basePath string // of the API server's URL, when it is behind a proxy
	scheme   *runtime.Scheme
	codecs   serializer.CodecFactory

	mu        sync.Mutex
	resources map[schema.GroupVersion][]metav1.APIResource // guarded by mu; dropped by Forget
	elsewhere map[schema.GroupVersionKind]string           // in which other version a kind was found; guarded by mu
	clients   map[schema.GroupVersion]rest.Interface       // guarded by mu
}

// Resource is a kind as the API server serves it.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind's name in singular and CamelCase.
	Kind string
	// Namespaced is true when objects of the kind live in namespaces.
	Namespaced bool
}

// Connect prepares a Cluster for the API server that config points to.
//
// The kinds that are built into Kubernetes (the types of k8s.io/api: Pods, Deployments, ...)
// are known; each function of addTypes, usually the AddToScheme of an API package, makes
// more known. The config is
// copied. Its client-side rate limit is switched off unless it was set (QPS above
// zero), because API servers have protected themselves with priority and fairness
// since Kubernetes 1.29 (KEP-1040), and the limit of 5 requests a second that an
// unset field means makes controllers slow for no reason that shows.
//
// Errors: a nil config, a config that no client can be made of, a function of
// addTypes that is nil or fails; all of them at once.
func Connect(config *rest.Config, addTypes ...func(*runtime.Scheme) error) (*Cluster, error) {
	if config == nil {
		return nil, errors.New("connect to a cluster: the rest config is nil: kube.LoadConfig finds one")
	}
	scheme := runtime.NewScheme()
	var errs []error
	// What every API server says besides objects: Status, lists of resources.
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
	if config.QPS == 0 {
		config.QPS = -1
	}
	c := &Cluster{
		config:    config,
		scheme:    scheme,
		codecs:    serializer.NewCodecFactory(scheme),
		resources: map[schema.GroupVersion][]metav1.APIResource{},
		elsewhere: map[schema.GroupVersionKind]string{},
		clients:   map[schema.GroupVersion]rest.Interface{},
	}
	// Part of the config, so that clients which are made of RESTConfig have it too.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return callTransport{next, c} })
	var err error
	if c.http, err = rest.HTTPClientFor(withBufferedDial(config)); err != nil {
		errs = append(errs, fmt.Errorf("make an HTTP client for %s: %w", config.Host, err))
	}
	if base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, false); err == nil {
		c.basePath = strings.TrimRight(base.Path, "/")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	// A host that makes no URL shows here, not at the first request.
	if _, err := c.RESTClient(schema.GroupVersion{Version: "v1"}); err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	return c, nil
}

// RESTConfig returns a copy of the config that the cluster was connected with.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// HTTPClient returns the HTTP client whose connections everything that is made from
// this cluster shares. Hand it to client-go's NewForConfigAndClient.
func (c *Cluster) HTTPClient() *http.Client { return c.http }

// Scheme returns the types that addTypes has registered. Do not change it. The types of
// k8s.io/api are not in it: that would link all of them into every program.
func (c *Cluster) Scheme() *runtime.Scheme { return c.scheme }

// KindOf returns the kind of obj: its own, where it carries one (unstructured and
// metadata-only objects do), otherwise the one that its Go type is registered for, or that a
// type of k8s.io/api is of.
func (c *Cluster) KindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	if IsNil(obj) {
		return schema.GroupVersionKind{}, errors.New("find the kind of an object: it is nil")
	}
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "" && kind.Version != "" {
		return kind, nil
	}
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return schema.GroupVersionKind{}, fmt.Errorf("find the kind of a %T: it carries none: set its apiVersion and kind", obj)
	}
	kinds, _, err := c.scheme.ObjectKinds(obj)
	if err == nil {
		return kinds[0], nil
	}
	if kind, ok := builtinKind(reflect.TypeOf(obj)); ok {
		return kind, nil
	}
	return schema.GroupVersionKind{}, fmt.Errorf("find the kind of %T: %w: hand its AddToScheme to kube.Connect", obj, err)
}

// Resource asks the API server how it serves kind. Answers are remembered; that a
// kind is missing is not, so that one that is installed later is found at the next call.
//
// Errors: ErrNotServed when there is no such kind; otherwise what the request met.
func (c *Cluster) Resource(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	gv := kind.GroupVersion()
	c.mu.Lock()
	known := c.resources[gv]
	c.mu.Unlock()
	if res, ok := findResource(known, kind); ok {
		return res, nil
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
		return res, nil
	}
	return Resource{}, fmt.Errorf("kind %s in %s: %w: install its CustomResourceDefinition, or check the version", kind.Kind, gv, ErrNotServed)
}

// discoveryTimeout bounds one question for the kinds of a group and version.
const discoveryTimeout = 30 * time.Second

// resourcesOf asks for the kinds of a group and version. client-go's discovery client would
// link the OpenAPI libraries for this one request.
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

// Forget drops what is known about the kinds of gv, so that the next Resource asks
// the API server again. Call it when a request for a known kind was answered with
// "not found": its CustomResourceDefinition has gone.
func (c *Cluster) Forget(gv schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.resources, gv)
}

// RESTClient returns a client for the registered types of gv. It prefers protobuf,
// and takes JSON where the server has nothing else (custom resources).
func (c *Cluster) RESTClient(gv schema.GroupVersion) (rest.Interface, error) {
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
		// A name with a slash is a subresource ("pods/status"), which may carry the
		// kind of its parent.
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
