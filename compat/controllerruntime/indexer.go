package controllerruntime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// queryField is the name of the field by which encodedCache.List passes a limit and a label selector on.
const queryField = "evenkeel.query"

// Names of controller-runtime: the prefix of the index of a field, and the namespace of its values for all namespaces.
const (
	fieldPrefix   = "field:"
	allNamespaces = "__all_namespaces"
)

// indexer is the store of an informer, which is read-only. It implements toolscache.Indexer.
type indexer struct {
	engine engineInformer

	mu       sync.Mutex
	indexers toolscache.Indexers // guarded by mu; replaced by AddIndexers, never changed
}

func newIndexer(engine engineInformer) *indexer {
	return &indexer{engine: engine, indexers: toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc, // the engine has this index
	}}
}

var errReadOnly = errors.New("the store of an informer cannot be written")

// GetByKey returns a new copy of the object with the key "namespace/name" or "name".
func (i *indexer) GetByKey(key string) (item any, exists bool, err error) {
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	obj, exists, err := i.engine.get(kube.Key{Namespace: namespace, Name: name})
	if !exists {
		return nil, false, err
	}
	return obj, true, nil
}

// Get returns a new copy of the object with the key of obj.
func (i *indexer) Get(obj any) (item any, exists bool, err error) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, err
	}
	return i.GetByKey(key)
}

// ByIndex returns new copies of the objects that have a value in an index. controller-runtime's values of fields are
// "namespace/value".
func (i *indexer) ByIndex(name, value string) ([]any, error) {
	if name == toolscache.NamespaceIndex && value == "" {
		return nil, nil
	}
	if name == toolscache.NamespaceIndex {
		return i.all(informer.Query{Namespace: value}, 0)
	}
	if name != fieldPrefix+queryField {
		values, err := i.indexFunc(name)
		if err != nil {
			return nil, err
		}
		if err := i.engine.indexError(name, values); err != nil {
			return nil, err
		}
		return i.all(informer.Query{Index: name, Value: value}, 0)
	}
	namespace, rest, _ := strings.Cut(value, "/")
	limit, selector, _ := strings.Cut(rest, "/")
	query := informer.Query{}
	if namespace != allNamespaces {
		query.Namespace = namespace
	}
	most, err := strconv.Atoi(limit)
	if err != nil {
		return nil, fmt.Errorf("read the limit of a list: %w", err)
	}
	if query.Labels, err = labels.Parse(selector); err != nil {
		return nil, fmt.Errorf("read the label selector of a list: %w", err)
	}
	return i.all(query, most)
}

// all returns new copies of the objects that query selects, limit of them if it is not 0.
func (i *indexer) all(query informer.Query, limit int) (objects []any, err error) {
	for obj, err := range i.engine.list(query) {
		if err != nil {
			return nil, err
		}
		if objects = append(objects, obj); len(objects) == limit {
			break
		}
	}
	return objects, nil
}

// List returns new copies of all objects that can be read.
func (i *indexer) List() (objects []any) {
	for obj, err := range i.engine.list(informer.Query{}) {
		if err == nil {
			objects = append(objects, obj)
		}
	}
	return objects
}

// ListKeys returns the keys of all objects.
func (i *indexer) ListKeys() (keys []string) {
	for change := range i.engine.Walk(0, 1) {
		keys = append(keys, change.Key.String())
	}
	return keys
}

// AddIndexers adds indexes. Unlike with client-go's, the objects that exist are indexed before it returns.
func (i *indexer) AddIndexers(added toolscache.Indexers) error {
	for name, values := range added {
		if _, err := i.indexFunc(name); err == nil {
			return fmt.Errorf("indexer conflict: %s", name)
		}
		values = withoutPanics(values)
		if err := i.engine.addIndex(name, values); err != nil {
			return err
		}
		i.mu.Lock()
		i.indexers = maps.Clone(i.indexers)
		i.indexers[name] = values
		i.mu.Unlock()
	}
	return nil
}

// withoutPanics returns an index function that returns the panics of values as errors.
func withoutPanics(values toolscache.IndexFunc) toolscache.IndexFunc {
	return func(obj any) (found []string, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("the index function panicked: %v", reason)
			}
		}()
		return values(obj)
	}
}

// GetIndexers returns the functions of the indexes. The result must not be changed.
func (i *indexer) GetIndexers() toolscache.Indexers {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.indexers
}

// indexFunc returns the function of an index.
func (i *indexer) indexFunc(name string) (toolscache.IndexFunc, error) {
	values := i.GetIndexers()[name]
	if values == nil {
		return nil, fmt.Errorf("index with name %s does not exist", name)
	}
	return values, nil
}

// Index returns new copies of the objects that have a value of obj in an index.
func (i *indexer) Index(name string, obj any) (objects []any, err error) {
	valuesOf, err := i.indexFunc(name)
	if err != nil {
		return nil, err
	}
	values, err := valuesOf(obj)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, value := range values {
		found, err := i.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		for _, item := range found {
			key, err := toolscache.MetaNamespaceKeyFunc(item)
			if err != nil {
				return nil, err
			}
			if !seen[key] {
				objects, seen[key] = append(objects, item), true
			}
		}
	}
	return objects, nil
}

// IndexKeys returns the keys of the objects that have a value in an index.
func (i *indexer) IndexKeys(name, value string) (keys []string, err error) {
	objects, err := i.ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	for _, obj := range objects {
		key, err := toolscache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ListIndexFuncValues returns all values of an index.
func (i *indexer) ListIndexFuncValues(name string) (values []string) {
	valuesOf, err := i.indexFunc(name)
	if err != nil {
		return nil
	}
	for _, obj := range i.List() {
		if found, err := valuesOf(obj); err == nil {
			values = append(values, found...)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// LastStoreSyncResourceVersion returns the version up to which all changes are in the store.
func (i *indexer) LastStoreSyncResourceVersion() string { return i.engine.Health().ResourceVersion }

// Bookmark does nothing: the informer has its own bookmarks.
func (i *indexer) Bookmark(string) {}

// Resync does nothing, as that of client-go's store.
func (i *indexer) Resync() error { return nil }

// Add returns an error.
func (i *indexer) Add(any) error { return errReadOnly }

// Update returns an error.
func (i *indexer) Update(any) error { return errReadOnly }

// Delete returns an error.
func (i *indexer) Delete(any) error { return errReadOnly }

// Replace returns an error.
func (i *indexer) Replace([]any, string) error { return errReadOnly }
