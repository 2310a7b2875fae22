package controllerruntime

import (
	"cmp"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// decodedBudget is the memory for decoded objects of both connections together, as much as one has by default.
const decodedBudget = 16 << 20

// informerFactory makes the informers of one cache. They share the HTTP client, the rate limiter and, if they accept
// the same content types, discovery.
type informerFactory struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// preferred accepts the content types of the program's config, or protobuf and JSON by default. json accepts JSON.
	preferred, json *kube.Cluster

	mu   sync.Mutex
	made []*sharedInformer // guarded by mu; without most of those that have stopped
}

// informersOf returns the informers of a kind that run.
func (f *informerFactory) informersOf(kind schema.GroupVersionKind) (all []informer.Any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.made {
		if s.HasSynced() && !s.IsStopped() && s.engine.Kind() == kind {
			all = append(all, s.engine)
		}
	}
	return all
}

func newInformerFactory(config *rest.Config, opts cache.Options) (*informerFactory, error) {
	shared, err := connection(config, opts.HTTPClient)
	if err != nil {
		return nil, err
	}
	shared.RateLimiter, shared.Timeout = config.RateLimiter, config.Timeout
	shared.WarningHandler, shared.WarningHandlerWithContext = config.WarningHandler, config.WarningHandlerWithContext
	if shared.RateLimiter == nil && config.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, cmp.Or(config.Burst, rest.DefaultBurst))
	}
	logger := slog.New(logr.ToSlogHandler(ctrllog.Log.WithName("cache")))
	connect := func(accept string) (*kube.Cluster, error) {
		shared.AcceptContentTypes = accept
		cluster, err := kube.Connect(shared)
		if err != nil {
			return nil, err
		}
		cluster.SetLogger(logger)
		return cluster, informer.SetDecodedBudget(cluster, decodedBudget/2)
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
