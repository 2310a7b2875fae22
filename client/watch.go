package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Watch opens a watch of the selected objects of type T, in one namespace or in all. It ends after some minutes, or
// with an error event, and events until the next watch are lost. An Informer, or package subscription, reopens watches
// and loses no events: use Watch only if that does not matter.
//
// The objects of events have the type T and carry their kind; an error event contains a *metav1.Status. The
// caller must call Stop or end ctx; ResultChan is closed after that.
//
// Options: NotOlderThan, the resourceVersion after which the watch starts. Without it, the first events are the
// existing objects.
//
// Errors: an error for which apierrors.IsResourceExpired is true, if the API server has
// dropped the events since that resourceVersion. It may also come as an event.
func Watch[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...ReadOption,
) (watch.Interface, error) {
	t, err := beginList[T](ctx, c, "watch", selection, options, "NotOlderThan")
	if err != nil {
		return nil, err
	}
	return t.watch(ctx)
}

// watch opens a watch of the selection.
func (t target) watch(ctx context.Context) (watch.Interface, error) {
	t.action = "watch"
	r := t.request(VerbWatch)
	r.List = t.listOptions()
	r.List.ResourceVersionMatch, r.List.Limit = "", 0
	err := t.client.send(ctx, r)
	return r.Stream, t.failed(err)
}

// openWatch opens the stream of a watch.
func (c *Client) openWatch(ctx context.Context, req *rest.Request, r *Request) error {
	ctx, cancel := context.WithCancel(ctx)
	// Watch is not used, because it decodes objects with the Cluster's scheme, which lacks the built-in types.
	body, err := req.Stream(ctx)
	if err != nil {
		cancel()
		r.Status = int(statusOf(err).Code)
		return c.explain(ctx, r, err)
	}
	r.Status = http.StatusOK
	like, _ := r.model.(kube.Object) // always an object
	source := &watchEvents{
		body: body, frames: json.NewDecoder(body), kind: r.Kind, like: like, ended: ctx.Done(),
		end: cancel,
	}
	// The caller ends its goroutine, by Stop or ctx.
	stream := watch.NewStreamWatcher(source, apierrors.NewClientErrorReporter(http.StatusInternalServerError,
		string(VerbWatch), "ClientWatchDecoding"))
	context.AfterFunc(ctx, stream.Stop) // if the caller ends ctx and stops reading
	r.Stream = stream
	return nil
}

// watchEvents decodes the events of a watch from the body of the response. It implements watch.Decoder.
type watchEvents struct {
	body   io.ReadCloser
	frames *json.Decoder
	kind   schema.GroupVersionKind
	like   kube.Object     // of the type of the events' objects
	ended  <-chan struct{} // closed when the watch has ended
	end    context.CancelFunc
}

// Decode implements watch.Decoder.
func (e *watchEvents) Decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := e.frames.Decode(&event); err != nil {
		select {
		case <-e.ended:
			return "", nil, io.EOF // the body was closed during the read
		default:
			return "", nil, err
		}
	}
	if event.Type == watch.Error {
		status := &metav1.Status{}
		return event.Type, status, decodeInto(event.Object, status)
	}
	obj, err := decodeOneOf(event.Object, e.kind, e.like)
	return event.Type, obj, err
}

// Close implements watch.Decoder.
func (e *watchEvents) Close() {
	e.end()
	_ = e.body.Close() // nothing reads from it anymore
}
