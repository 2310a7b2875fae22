package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// response is a response before it is written.
type response struct {
	code   int
	header http.Header
	body   []byte  // must not be changed: it may be the cached encoding of a stored object
	stream *stream // of a watch, in place of body
}

func newResponse(code int, media mediaType, body []byte) *response {
	return &response{code: code, header: http.Header{"Content-Type": {string(media)}}, body: body}
}

// notServed is the response for paths that no resource has.
func notServed() *response {
	return newResponse(http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n"))
}

// failure returns the response for an error.
func (s *serving) failure(err error, header http.Header) *response {
	out, negotiation := accepted(header, nil, false)
	if negotiation != nil {
		out.media = mediaJSON
	}
	status := statusOf(err)
	body, err := s.codecs.encode(status, out.media)
	if err != nil {
		return newResponse(http.StatusInternalServerError, "text/plain", []byte(err.Error()))
	}
	res := newResponse(int(status.Code), out.media, body)
	setRetryAfter(res.header, status)
	return res
}

// ErrorResponse returns the response with which an API server reports an error, as JSON: for code that responds in
// place of the server.
func ErrorResponse(status metav1.Status) (*http.Response, error) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encode the status %q: %w", status.Message, err)
	}
	code := int(status.Code)
	res := &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {string(mediaJSON)}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)),
	}
	setRetryAfter(res.Header, &status)
	return res, nil
}

// setRetryAfter tells the client when to repeat a request, if the status has it.
func setRetryAfter(header http.Header, status *metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
}

// object returns a response with an object in the form that the client accepts.
func (r *request) object(code int, rec *record) (*response, error) {
	rec, err := rec.as(r.kind)
	if err == nil && r.scaled() {
		rec, err = r.scaleRecord(rec)
	}
	if err != nil {
		return nil, err
	}
	body, err := r.encodeRecord(rec)
	if err != nil {
		return nil, err
	}
	return newResponse(code, r.out.media, body), nil
}

// notAcceptable is the error of a conversion that is not possible. By then, the operation has been executed.
func (r *request) notAcceptable(format, goType string) error {
	message := fmt.Sprintf("you requested %s, but the requested object "+format, r.out.as, goType)
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

func (r *request) encodeRecord(rec *record) ([]byte, error) {
	switch r.out.as {
	case partialObject:
		return r.serving.codecs.encode(r.partial(rec), r.out.media)
	case partialList:
		switch {
		case r.scaled() && r.kind.custom():
			return nil, r.notAcceptable("is not a list (%s)", "*v1.Scale")
		case r.scaled():
			return nil, r.notAcceptable("is not a list (%s)", "*autoscaling.Scale")
		case r.kind.custom():
			return nil, errors.New("content is not a list") // the real server's error
		}
		return nil, r.notAcceptable("is not a list (%s)", rec.kind.internalType(rec.kind.Kind))
	}
	return r.serving.codecs.encoded(rec, r.out.media)
}

// status returns a response with a Status that reports success.
func (r *request) status(code int, details *metav1.StatusDetails) (*response, error) {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Details: details,
	}
	if code == http.StatusCreated {
		status.Code = http.StatusCreated
	}
	media := r.out.media
	body, err := r.serving.codecs.encode(status, media)
	if err != nil {
		return nil, err
	}
	return newResponse(code, media, body), nil
}

// partial returns the metadata of a stored object.
func (r *request) partial(rec *record) *metav1.PartialObjectMetadata {
	p := meta.AsPartialObjectMetadata(rec.obj)
	p.SetGroupVersionKind(r.out.partialKind(partialObject))
	return p
}

// partialKind returns a kind in the version that the client accepts.
func (o output) partialKind(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: o.version, Kind: name}
}

// list returns a response with a list.
func (r *request) list(records []*record, listMeta metav1.ListMeta) (*response, error) {
	body, err := r.encodeList(records, listMeta)
	if err != nil {
		return nil, err
	}
	return newResponse(http.StatusOK, r.out.media, body), nil
}

func (r *request) encodeList(records []*record, listMeta metav1.ListMeta) ([]byte, error) {
	codecs := r.serving.codecs
	switch r.out.as {
	case partialObject:
		return nil, r.notAcceptable("is a list (%s)", r.kind.internalType(r.kind.listKind()))
	case partialList:
		list := &metav1.PartialObjectMetadataList{ListMeta: listMeta}
		list.SetGroupVersionKind(r.out.partialKind(partialList))
		for _, rec := range records {
			list.Items = append(list.Items, *r.partial(rec))
		}
		return codecs.encode(list, r.out.media)
	}
	if r.out.media == mediaJSON {
		return r.encodeListJSON(records, listMeta)
	}
	list, err := codecs.scheme.New(r.kind.GroupVersion().WithKind(r.kind.listKind()))
	if err != nil { // a custom resource, or a Go type without a list type
		unstructuredList := &unstructured.UnstructuredList{}
		text, err := r.encodeListJSON(records, listMeta)
		if err != nil {
			return nil, err
		}
		if err := unstructuredList.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("convert a list of %s: %w", r.kind.Resource, err)
		}
		return codecs.encode(unstructuredList, r.out.media)
	}
	items := make([]runtime.Object, len(records))
	for i, rec := range records {
		items[i] = rec.obj.DeepCopyObject()
		items[i].GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // items of Go types have no TypeMeta
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", r.kind.Resource, err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", r.kind.Resource, err)
	}
	accessor.SetResourceVersion(listMeta.ResourceVersion)
	accessor.SetContinue(listMeta.Continue)
	accessor.SetRemainingItemCount(listMeta.RemainingItemCount)
	list.GetObjectKind().SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.listKind()))
	return codecs.encode(list, r.out.media)
}

// encodeListJSON joins the cached encodings of the objects. Items of Go types have no TypeMeta, those of custom
// resources have one.
func (r *request) encodeListJSON(records []*record, listMeta metav1.ListMeta) ([]byte, error) {
	var b bytes.Buffer
	size := 256
	typeMeta := 0
	if !r.kind.custom() {
		typeMeta = len(fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, r.kind.Kind, r.kind.GroupVersion()))
	}
	texts := make([][]byte, len(records))
	for i, rec := range records {
		text, err := r.serving.codecs.encoded(rec, mediaJSON)
		if err != nil {
			return nil, err
		}
		texts[i] = bytes.TrimSuffix(text, []byte("\n"))
		size += len(text)
	}
	b.Grow(size)
	fmt.Fprintf(&b, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q`, r.kind.listKind(),
		r.kind.GroupVersion(), listMeta.ResourceVersion)
	if listMeta.Continue != "" || r.kind.custom() {
		fmt.Fprintf(&b, `,"continue":%q`, listMeta.Continue)
	}
	if listMeta.RemainingItemCount != nil {
		fmt.Fprintf(&b, `,"remainingItemCount":%d`, *listMeta.RemainingItemCount)
	}
	b.WriteString(`},"items":[`)
	for i, text := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		if typeMeta > 0 {
			b.WriteByte('{')
			text = text[typeMeta:]
		}
		b.Write(text)
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// ServeHTTP handles a request as the API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	res := s.respond(req) //nolint:contextcheck // it is the request's
	maps.Copy(w.Header(), res.header)
	w.WriteHeader(res.code)
	if res.stream == nil {
		_, _ = w.Write(res.body) // the client is gone if it fails
		return
	}
	defer func() { _ = res.stream.Close() }()
	flusher, _ := w.(http.Flusher)
	buffer := make([]byte, 32<<10)
	for {
		if flusher != nil && !res.stream.buffered() {
			flusher.Flush()
		}
		n, err := res.stream.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Transport returns a transport whose requests the server handles in the caller's goroutine. It needs no connection.
// The body of a watch waits until there is an event, the request's context ends, or it is closed.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ server *Server }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	res := t.server.respond(req) //nolint:contextcheck // it is the request's
	httpRes := &http.Response{
		StatusCode: res.code, Status: strconv.Itoa(res.code) + " " + http.StatusText(res.code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: res.header, Request: req, ContentLength: int64(len(res.body)),
		Body: io.NopCloser(bytes.NewReader(res.body)),
	}
	if res.stream != nil {
		httpRes.ContentLength, httpRes.Body = -1, res.stream
	}
	return httpRes, nil
}
