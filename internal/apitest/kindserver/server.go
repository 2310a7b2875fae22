// Package kindserver is an informer.Retriever of one kind on an API server in memory, for tests in virtual time. It
// returns objects, not encoded ones, so that it tests what informers do with any Retriever.
package kindserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Server is an API server of one kind, and the informer.Retriever of its objects in all namespaces.
type Server[T kube.Object] struct {
	*apitest.Server
	kind      *apiserver.Kind
	newList   func() runtime.Object
	watchList bool
	// media is the media type of requests and responses: protobuf if T is a type of a built-in kind.
	// Protobuf takes a fraction of JSON's time.
	media string
	// metadataOnly is true if T is *metav1.PartialObjectMetadata.
	metadataOnly bool

	mu        sync.Mutex
	stale     []byte           // the list that lists return; nil: the current one; guarded by mu
	failures  map[string]error // by verb; guarded by mu
	bookmarks int              // calls of Bookmark; guarded by mu
}

// New returns an empty server of a kind, whose objects are decoded as T. With watchList the server streams lists;
// without it rejects streamed lists, as servers before Kubernetes 1.32 do.
func New[T kube.Object](kind *apiserver.Kind, watchList bool) *Server[T] {
	r := &Server[T]{
		Server: apitest.New(kind), kind: kind, watchList: watchList, media: runtime.ContentTypeJSON,
		failures: map[string]error{},
	}
	switch any(apiobject.New[T]()).(type) {
	case *unstructured.Unstructured:
		r.newList = func() runtime.Object { return &unstructured.UnstructuredList{} }
	case *metav1.PartialObjectMetadata:
		r.newList = func() runtime.Object { return &metav1.PartialObjectMetadataList{} }
		r.metadataOnly = true
	default:
		if _, hasProtobuf := any(apiobject.New[T]()).(message); hasProtobuf {
			r.media = runtime.ContentTypeProtobuf
		}
		scheme := runtime.NewScheme()
		if err := kind.AddToScheme(scheme); err != nil {
			panic(fmt.Sprintf("kindserver: register %s: %v", kind.Kind, err))
		}
		r.newList = func() runtime.Object {
			list, err := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err != nil {
				panic(fmt.Sprintf("kindserver: a list of %s: %v", kind.Kind, err))
			}
			return list
		}
	}
	return r
}

// message is an object with a protobuf form.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
}

// Fork returns a server with the same objects, which changes independently from then on.
func (r *Server[T]) Fork() *Server[T] {
	return &Server[T]{
		Server: r.Server.Fork(), kind: r.kind, newList: r.newList, watchList: r.watchList,
		media: r.media, metadataOnly: r.metadataOnly, failures: map[string]error{},
	}
}

// Put creates obj, or gives the object of its name the content of obj. It returns the stored object. It panics if the
// server rejects obj.
func (r *Server[T]) Put(obj T) T {
	key := kube.KeyOf(obj)
	obj = obj.DeepCopyObject().(T)
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	const manager = "?fieldManager=editor"
	path := r.pathIn(key.Namespace)
	for {
		method, target := http.MethodPost, path
		old, err := r.get(key)
		if err == nil {
			method, target = http.MethodPut, path+"/"+key.Name
			obj.SetUID(old.GetUID())
			obj.SetResourceVersion(old.GetResourceVersion())
			obj.SetCreationTimestamp(old.GetCreationTimestamp())
			obj.SetManagedFields(old.GetManagedFields())
		}
		stored, err := r.write(method, target+manager, obj)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // otherwise it was changed in between
			return r.must(stored, err, key)
		}
	}
}

// write sends an object, and returns the stored one.
func (r *Server[T]) write(method, path string, obj T) (stored T, err error) {
	body, err := r.encode(obj)
	if err != nil {
		return stored, err
	}
	return r.send(method, path, body)
}

// encode returns the body of a request.
func (r *Server[T]) encode(obj T) ([]byte, error) {
	if r.media == runtime.ContentTypeJSON {
		return json.Marshal(obj)
	}
	raw, err := any(obj).(message).Marshal()
	if err != nil {
		return nil, err
	}
	version, kind := r.kind.GroupVersionKind.ToAPIVersionAndKind()
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: raw}
	text, err := envelope.Marshal()
	return append([]byte("k8s\x00"), text...), err
}

// send makes a request, and returns the object of the response.
func (r *Server[T]) send(method, path string, body []byte) (obj T, err error) {
	obj = apiobject.New[T]()
	text, err := r.SendWith(http.Header{"Accept": {r.media}, "Content-Type": {r.media}}, method, path, body)
	if err != nil {
		return obj, err
	}
	return obj, apitest.Decode(text, obj)
}

func (r *Server[T]) must(stored T, err error, key kube.Key) T {
	if err != nil {
		panic(fmt.Sprintf("kindserver: put %s %s: %v", r.kind.Kind, key, err))
	}
	return stored
}

// Get returns an object, which must exist.
func (r *Server[T]) Get(key kube.Key) T {
	obj, err := r.get(key)
	return r.must(obj, err, key)
}

func (r *Server[T]) get(key kube.Key) (T, error) {
	return r.send(http.MethodGet, r.pathIn(key.Namespace)+"/"+key.Name, nil)
}

// Delete deletes the object under key, which must exist.
func (r *Server[T]) Delete(key kube.Key) {
	r.Edit(r.kind.Resource, key, "editor", func(map[string]any) bool { return false })
}

// DropWatches ends every open watch, like a broken connection.
func (r *Server[T]) DropWatches() { r.Break(r.kind.Resource, false) }

// Mute makes all watches, open and new, send no changes. Mute(false) makes them send changes again, including the
// missed ones. Streamed lists are sent in any case.
func (r *Server[T]) Mute(mute bool) {
	if mute {
		r.HoldWatches(r.kind.Resource)
		return
	}
	r.ReleaseWatches(r.kind.Resource)
}

// Bookmark sends a bookmark to all open watches. Watches get no other bookmarks but the one that ends a streamed list,
// as if the server had been started a moment ago.
func (r *Server[T]) Bookmark() {
	r.mu.Lock()
	r.bookmarks++
	r.mu.Unlock()
	r.Server.Bookmark(r.kind.Resource)
}

// Fail makes requests with verb ("list", "watch") fail with err itself, until err is nil.
func (r *Server[T]) Fail(verb string, err error) {
	r.mu.Lock()
	r.failures[verb] = err
	r.mu.Unlock()
	r.Server.Fail(verb, err)
}

// Counts returns the numbers of list requests, of watch requests, and of open watches.
func (r *Server[T]) Counts() (lists, watches, open int) {
	return r.Count("list"), r.Count("watch"), r.Watches()
}

// ServeStale makes lists return the objects that exist now, until Fresh is called: also lists that may not be older
// than a later version, which no real server does.
func (r *Server[T]) ServeStale() {
	r.setStale(r.Send(http.MethodGet, r.path(), nil))
}

// Fresh ends ServeStale.
func (r *Server[T]) Fresh() { r.setStale(nil, nil) }

func (r *Server[T]) setStale(list []byte, err error) {
	if err != nil {
		panic(fmt.Sprintf("kindserver: list: %v", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = list
}

// path returns the path of all objects.
func (r *Server[T]) path() string { return r.pathIn("") }

// pathIn returns the path of the objects in a namespace; "": all objects.
func (r *Server[T]) pathIn(namespace string) string {
	path := "/api/" + r.kind.Version
	if r.kind.Group != "" {
		path = "/apis/" + r.kind.Group + "/" + r.kind.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.kind.Resource
}
