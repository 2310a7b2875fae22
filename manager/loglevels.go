package manager

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// LogLevels are the lowest levels of the log records of a program: one of all loggers, and others of loggers by name.
// The names are those of controllers, informers and runnables. They may be changed at any time. The zero value is info
// for all loggers. It is a flag.Value and an http.Handler.
type LogLevels struct {
	mu      sync.Mutex                            // held by Set
	current atomic.Pointer[map[string]slog.Level] // by name, "" for all loggers; the map is never changed
}

// loggerNames returns the attributes whose values are names of loggers.
func loggerNames() []string { return []string{"controller", "informer", "runnable", "library"} }

// Set changes levels. The text is a list with commas: "debug" is the level of all loggers, "webapp=debug" that of the
// loggers with the name webapp, and "webapp=" removes the level of that name. A level is one of slog.Level. Other
// levels do not change. If the text has mistakes, nothing changes, and the error contains all of them.
func (l *LogLevels) Set(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	levels := map[string]slog.Level{}
	if current := l.current.Load(); current != nil {
		levels = maps.Clone(*current)
	}
	var errs []error
	for entry := range strings.SplitSeq(text, ",") {
		name, value, named := strings.Cut(strings.TrimSpace(entry), "=")
		if !named {
			name, value = "", name
		}
		var level slog.Level
		if named && name == "" {
			errs = append(errs, fmt.Errorf("%q has no name before =", entry))
		} else if named && value == "" {
			delete(levels, name)
		} else if err := level.UnmarshalText([]byte(value)); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", entry, err))
		} else {
			levels[name] = level
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l.current.Store(&levels)
	return nil
}

// String returns a text for Set.
func (l *LogLevels) String() string {
	entries := []string{strings.ToLower(l.of(nil).String())}
	if current := l.current.Load(); current != nil {
		for _, name := range slices.Sorted(maps.Keys(*current)) {
			if name != "" {
				entries = append(entries, name+"="+strings.ToLower((*current)[name].String()))
			}
		}
	}
	return strings.Join(entries, ",")
}

// ServeHTTP responds with the levels. PUT and POST call Set with the body before that.
func (l *LogLevels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut, http.MethodPost:
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		if err == nil {
			err = l.Set(strings.TrimSpace(string(text)))
		}
		if err != nil {
			http.Error(w, "set the log levels: "+err.Error(), http.StatusBadRequest)
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT")
		http.Error(w, "the methods are GET, HEAD, POST and PUT", http.StatusMethodNotAllowed)
		return
	}
	fmt.Fprintln(w, l)
}

// of returns the level of a logger with names. The last name that has a level determines it.
func (l *LogLevels) of(names []string) slog.Level {
	current := l.current.Load()
	if current == nil {
		return slog.LevelInfo
	}
	for _, name := range slices.Backward(names) {
		if level, ok := (*current)[name]; ok {
			return level
		}
	}
	return (*current)[""] // the zero Level is info
}

// leveledHandler passes on the records that LogLevels permits.
type leveledHandler struct {
	slog.Handler // which permits all levels

	levels  *LogLevels
	names   []string // of the logger
	inGroup bool     // then attributes are not names
}

// Enabled implements slog.Handler.
func (h *leveledHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.of(h.names)
}

// WithAttrs implements slog.Handler.
func (h *leveledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	for _, attr := range attrs {
		if !h.inGroup && slices.Contains(loggerNames(), attr.Key) {
			next.names = append(slices.Clip(next.names), attr.Value.String())
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *leveledHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler, next.inGroup = h.Handler.WithGroup(name), h.inGroup || name != ""
	return &next
}

// hider returns the ReplaceAttr of a slog handler that does not log the content of Kubernetes objects, nor the values
// of attributes with the keys, which may be groups.
func hider(keys []string) func(groups []string, attr slog.Attr) slog.Attr {
	return func(groups []string, attr slog.Attr) slog.Attr {
		isHidden := func(name string) bool {
			return slices.ContainsFunc(keys, func(key string) bool { return strings.EqualFold(key, name) })
		}
		if isHidden(attr.Key) || slices.ContainsFunc(groups, isHidden) {
			attr.Value = slog.StringValue("(hidden)")
		} else if attr.Value.Kind() == slog.KindAny {
			attr.Value = withoutContent(attr.Value)
		}
		return attr
	}
}

// withoutContent returns a value in place of one that is or has Kubernetes objects, or that is the data of a Secret.
func withoutContent(value slog.Value) slog.Value {
	switch v := value.Any().(type) {
	case map[string][]byte:
		return slog.StringValue("(hidden)")
	case metav1.Object:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return slog.StringValue("nil")
		}
		return slog.StringValue(strings.TrimPrefix(v.GetNamespace()+"/"+v.GetName(), "/"))
	case runtime.Object:
		return slog.StringValue(fmt.Sprintf("%T (hidden)", v)) // a list
	case error:
		return value
	}
	t := reflect.TypeOf(value.Any())
	visits := maxVisits
	if hasObjects(t, map[reflect.Type]bool{}) || holdsObjects(reflect.ValueOf(value.Any()), true, &visits) {
		return slog.StringValue(t.String() + " (hidden)")
	}
	return value
}

// maxVisits limits the values that holdsObjects visits. A larger value, or one that contains itself, is hidden.
const maxVisits = 10_000

// holdsObjects reports whether a value contains interfaces with Kubernetes objects, or the content of an unstructured
// one, which its type does not show. Handlers follow pointers only in exported fields, so it does the same: other
// goroutines may change what unexported pointers refer to.
func holdsObjects(v reflect.Value, exported bool, visits *int) bool {
	if *visits--; *visits < 0 {
		return true
	}
	if !v.IsValid() || writesItself(v.Type()) {
		return false
	}
	switch v.Kind() {
	case reflect.Interface:
		return !v.IsNil() && (isObject(v.Elem().Type()) || hasObjects(v.Elem().Type(), map[reflect.Type]bool{}) ||
			holdsObjects(v.Elem(), exported, visits))
	case reflect.Pointer:
		return exported && !v.IsNil() && holdsObjects(v.Elem(), exported, visits)
	case reflect.Slice, reflect.Array:
		if !mayHoldInterfaces(v.Type().Elem()) {
			return false
		}
		for i := range v.Len() {
			if holdsObjects(v.Index(i), exported, visits) {
				return true
			}
		}
	case reflect.Map:
		if !mayHoldInterfaces(v.Type().Elem()) {
			return false
		}
		if v.Type() == reflect.TypeFor[map[string]any]() && v.MapIndex(reflect.ValueOf("kind")).IsValid() &&
			v.MapIndex(reflect.ValueOf("apiVersion")).IsValid() {
			return true
		}
		for entries := v.MapRange(); entries.Next(); {
			if holdsObjects(entries.Value(), exported, visits) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if holdsObjects(v.Field(i), exported && v.Type().Field(i).IsExported(), visits) {
				return true
			}
		}
	}
	return false
}

// isObject reports whether a type is the one of a Kubernetes object or a list.
func isObject(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[metav1.Object]()) || t.Implements(reflect.TypeFor[runtime.Object]())
}

// mayHoldInterfaces returns false for types of which a value may be long, and contains no interface.
func mayHoldInterfaces(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}

// writesItself reports whether handlers call a method of a type in place of writing its fields.
func writesItself(t reflect.Type) bool {
	if t.Kind() == reflect.Interface {
		return false
	}
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || t.Implements(reflect.TypeFor[error]()) ||
		t.Implements(reflect.TypeFor[json.Marshaler]()) && t.Implements(reflect.TypeFor[fmt.Stringer]())
}

// hasObjects reports whether values of a type contain Kubernetes objects or data of Secrets.
func hasObjects(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	if t == reflect.TypeFor[map[string][]byte]() || t.Implements(reflect.TypeFor[metav1.Object]()) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[metav1.Object]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hasObjects(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if hasObjects(field.Type, seen) {
				return true
			}
		}
	}
	return false
}
