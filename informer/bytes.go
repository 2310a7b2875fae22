package informer

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// clusterFeed reads encoded objects from the API server.
type clusterFeed struct {
	cut      *wire.Cut
	received *atomic.Int64
	// request returns a request for the selected objects.
	request func(ctx context.Context, opts metav1.ListOptions, as string) (*rest.Request, error)
	// explain adds the failed operation to an error.
	explain func(verb string, err error) error
}

// feed returns a feed of the objects that r retrieves.
func (r *clusterRetriever[T]) feed(cut *wire.Cut, received *atomic.Int64) feed {
	return clusterFeed{cut: cut, received: received, request: r.request, explain: r.explain}
}

// request returns a request for the objects that r selects. as is the response type of metadata-only requests.
func (r *clusterRetriever[T]) request(ctx context.Context, opts metav1.ListOptions, as string) (*rest.Request, error) {
	if r.problem != nil {
		return nil, r.problem
	}
	resource, err := r.resource(ctx)
	if err != nil {
		return nil, err
	}
	client, err := r.cluster.RESTClient(resource.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("retrieve %s: %w", r.Describe().text(), err)
	}
	opts.LabelSelector, opts.FieldSelector = r.labels, r.fields
	// Retries are disabled, because client-go would wait as long as a Retry-After demands, without a report. The
	// informer reports the error and retries with its own backoff.
	return client.Get().MaxRetries(0).
		NamespaceIfScoped(r.namespace, r.namespace != "").
		Resource(resource.Resource).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", r.accept(as)), nil
}

// accept returns the content types to request: those of the config, otherwise protobuf (if T can be decoded from it)
// and JSON.
func (r *clusterRetriever[T]) accept(as string) string {
	types := []string{runtime.ContentTypeJSON}
	if reflect.TypeFor[T]() != reflect.TypeFor[*unstructured.Unstructured]() && wire.SupportsProtobuf[T]() {
		types = []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}
	}
	if configured := r.cluster.RESTConfig().AcceptContentTypes; configured != "" {
		types = strings.Split(configured, ",")
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		for i := range types {
			types[i] += ";as=" + as + ";g=meta.k8s.io;v=v1"
		}
	}
	return strings.Join(types, ",")
}

// deadConnections is the number of retries of a watch on dead connections, such as those from before a restart of the
// API server. The next connection is new, and its error is more specific.
const deadConnections = 3

func (f clusterFeed) list(
	ctx context.Context, opts metav1.ListOptions, each func(*wire.Object) error,
) (metav1.ListMeta, error) {
	request, err := f.request(ctx, opts, "PartialObjectMetadataList")
	if err != nil {
		return metav1.ListMeta{}, err
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, f.explain("list", err)
	}
	defer body.Close()
	about, err := wire.ReadList(counted{body, f.received}, f.cut, each)
	return about, f.explain("list", err)
}

func (f clusterFeed) watch(ctx context.Context, opts metav1.ListOptions) (events, error) {
	opts.Watch = true
	request, err := f.request(ctx, opts, "PartialObjectMetadata")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	body, err := request.Stream(ctx)
	for range deadConnections {
		if !utilnet.IsProbableEOF(err) || ctx.Err() != nil {
			break
		}
		body, err = request.Stream(ctx)
	}
	if err != nil {
		cancel()
		return nil, f.explain("watch", err)
	}
	return byteEvents{wire.NewEventReader(counted{body, f.received}, f.cut), body, cancel}, nil
}

// byteEvents are the events in a response body.
type byteEvents struct {
	reader *wire.EventReader
	body   io.Closer
	cancel context.CancelFunc
}

func (e byteEvents) next() (wire.Event, error) { return e.reader.Next() }

func (e byteEvents) stop() {
	e.cancel()
	_ = e.body.Close() // the body is not needed anymore, so an error does not matter
}

func (e byteEvents) join() bool { e.stop(); return true }

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}
