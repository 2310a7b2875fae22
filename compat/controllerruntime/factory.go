package controllerruntime

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel-go/evenkeel/kube"
)

// informerFactory makes the informers of one cache. They share the HTTP client, the rate limiter and, if they accept
// the same content types, discovery.
type informerFactory struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// preferred accepts the content types of the program's config, or protobuf and JSON by default. json accepts JSON.
	preferred, json *kube.Cluster
}

func newInformerFactory(config *rest.Config, opts cache.Options) (*informerFactory, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the URL of the API server: %w", err)
	}
	shared := &rest.Config{
		Host: server.String(), Transport: opts.HTTPClient.Transport, UserAgent: config.UserAgent,
		RateLimiter: config.RateLimiter, Timeout: config.Timeout,
		WarningHandler: config.WarningHandler, WarningHandlerWithContext: config.WarningHandlerWithContext,
	}
	if shared.Transport == nil {
		shared.Transport = http.DefaultTransport
	}
	if shared.RateLimiter == nil && config.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, cmp.Or(config.Burst, rest.DefaultBurst))
	}
	logger := slog.New(logr.ToSlogHandler(ctrllog.Log.WithName("cache")))
	connect := func(accept string) (*kube.Cluster, error) {
		shared.AcceptContentTypes = accept
		cluster, err := kube.Connect(shared)
		if err == nil {
			cluster.SetLogger(logger)
		}
		return cluster, err
	}
	f := &informerFactory{scheme: opts.Scheme, mapper: opts.Mapper}
	contentType := cmp.Or(config.ContentType, runtime.ContentTypeProtobuf)
	accept := cmp.Or(config.AcceptContentTypes, contentType+","+runtime.ContentTypeJSON)
	if f.preferred, err = connect(accept); err != nil {
		return nil, err
	}
	f.json, err = connect(runtime.ContentTypeJSON)
	return f, err
}
