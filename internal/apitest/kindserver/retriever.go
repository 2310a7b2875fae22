package kindserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Describe implements informer.Retriever.
func (r *Server[T]) Describe() informer.Description[T] {
	return informer.Description[T]{WatchList: r.watchList}
}

// List implements informer.Retriever.
func (r *Server[T]) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	text, err := r.listed(ctx, options)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if r.stale != nil {
		text = r.stale
	}
	r.mu.Unlock()
	list := r.newList()
	return list, apitest.Decode(text, list)
}

func (r *Server[T]) listed(ctx context.Context, options metav1.ListOptions) ([]byte, error) {
	body, err := r.request(ctx, options)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// Watch implements informer.Retriever.
func (r *Server[T]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && !r.watchList {
		return nil, apierrors.NewBadRequest("sendInitialEvents is forbidden for watch unless the WatchList feature " +
			"gate is enabled")
	}
	options.Watch = true
	body, err := r.request(ctx, options)
	if err != nil {
		return nil, err
	}
	// Its goroutine ends when the Reflector stops the watch, or when ctx ends.
	e := &events[T]{retriever: r, body: body, next: jsonFrames(body)}
	if r.media == runtime.ContentTypeProtobuf {
		e.next = protobufFrames(body)
	}
	e.bookmarkDue()
	return watch.NewStreamWatcher(e, reporter{}), nil
}

// request makes a list or watch request. Error: the Status of the response.
func (r *Server[T]) request(ctx context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
	address := "http://apitest.invalid" + r.path() + "?" + queryOf(options).Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", r.accept(options.Watch))
	verb := "list"
	if options.Watch {
		verb = "watch"
	}
	r.mu.Lock()
	failure := r.failures[verb]
	r.mu.Unlock()
	res, err := r.RoundTrip(req)
	if failure != nil {
		err = failure
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if err := apitest.Decode(text, &status); err != nil {
		return nil, fmt.Errorf("decode a Status: %w", err)
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

// accept returns the header Accept of a request.
func (r *Server[T]) accept(isWatch bool) string {
	switch {
	case !r.metadataOnly:
		return r.media
	case isWatch:
		return r.media + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	}
	return r.media + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
}

// queryOf returns the query of a list or watch request.
func queryOf(options metav1.ListOptions) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"resourceVersion": options.ResourceVersion, "resourceVersionMatch": string(options.ResourceVersionMatch),
		"labelSelector": options.LabelSelector, "fieldSelector": options.FieldSelector, "continue": options.Continue,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, isSet := range map[string]bool{
		"watch": options.Watch, "allowWatchBookmarks": options.AllowWatchBookmarks,
		"sendInitialEvents": options.SendInitialEvents != nil && *options.SendInitialEvents,
	} {
		if isSet {
			query.Set(name, "true")
		}
	}
	if options.TimeoutSeconds != nil {
		query.Set("timeoutSeconds", strconv.FormatInt(*options.TimeoutSeconds, 10))
	}
	if options.Limit > 0 {
		query.Set("limit", strconv.FormatInt(options.Limit, 10))
	}
	return query
}

// events decodes the events of a watch.
type events[T kube.Object] struct {
	retriever *Server[T]
	body      io.ReadCloser
	next      func(*metav1.WatchEvent) error // reads an event
	bookmarks int                            // calls of Server.Bookmark for which the watch has sent one
}

// bookmarkDue reports whether Server.Bookmark has been called since the last call.
func (e *events[T]) bookmarkDue() bool {
	e.retriever.mu.Lock()
	defer e.retriever.mu.Unlock()
	due := e.bookmarks < e.retriever.bookmarks
	e.bookmarks = e.retriever.bookmarks
	return due
}

// Decode implements watch.Decoder. A watch whose context has ended ends without an error.
func (e *events[T]) Decode() (watch.EventType, runtime.Object, error) {
	var event metav1.WatchEvent
	if err := e.next(&event); err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, http.ErrBodyReadAfterClose) {
			err = io.EOF
		}
		return "", nil, err
	}
	eventType := watch.EventType(event.Type)
	if eventType == watch.Error {
		status := &metav1.Status{}
		return eventType, status, apitest.Decode(event.Object.Raw, status)
	}
	obj := apiobject.New[T]()
	if err := apitest.Decode(event.Object.Raw, obj); err != nil {
		return "", nil, err
	}
	if eventType == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "" &&
		!e.bookmarkDue() {
		return e.Decode()
	}
	return eventType, obj, nil
}

// jsonFrames returns a function that reads the next event of a watch in JSON.
func jsonFrames(body io.Reader) func(*metav1.WatchEvent) error {
	decoder := json.NewDecoder(body)
	return func(event *metav1.WatchEvent) error { return decoder.Decode(event) }
}

// protobufFrames returns a function that reads the next event of a watch in protobuf, whose length precedes it.
func protobufFrames(body io.Reader) func(*metav1.WatchEvent) error {
	var length [4]byte
	var frame []byte
	return func(event *metav1.WatchEvent) error {
		if _, err := io.ReadFull(body, length[:]); err != nil {
			return err
		}
		frame = append(frame[:0], make([]byte, binary.BigEndian.Uint32(length[:]))...)
		if _, err := io.ReadFull(body, frame); err != nil {
			return err
		}
		return event.Unmarshal(frame)
	}
}

// Close implements watch.Decoder.
func (e *events[T]) Close() { _ = e.body.Close() }

// reporter makes the object of an ERROR event from an error.
type reporter struct{}

func (reporter) AsObject(err error) runtime.Object {
	status := apierrors.NewInternalError(err).Status()
	return &status
}
