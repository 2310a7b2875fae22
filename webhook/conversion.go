package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// conversionTimeout is the time for a conversion review. The API server sends no time-out.
const conversionTimeout = 30 * time.Second

// Version is a version of a kind that is converted to the hub version with the Go type H, and back. Spoke creates it.
type Version[H kube.Object] struct{ version }

// Spoke returns the version with the Go type S. toHub sets the fields of hub from those of spoke, and fromHub the other
// way round. The object that they set has the metadata of the other one, and no other fields. Of the metadata, they may
// change only labels and annotations.
//
// An error fails the request of the client; its text should contain the path of the field, as those of package field
// do. Both functions must depend on their arguments only. CheckRoundTrips tests that they lose no field.
func Spoke[S, H kube.Object](toHub func(spoke S, hub H) error, fromHub func(hub H, spoke S) error) Version[H] {
	v := version{empty: func() kube.Object { return apiobject.New[S]() }}
	if toHub != nil && fromHub != nil {
		v.toHub = func(from, to kube.Object) error { return toHub(from.(S), to.(H)) }
		v.fromHub = func(from, to kube.Object) error { return fromHub(from.(H), to.(S)) }
	}
	return Version[H]{v}
}

// Converting returns a hook that converts the custom resources of a CustomResourceDefinition with the name crd, for
// example "webapps.example.com", between the hub version with the Go type H and the spokes. Two spokes are converted by
// way of the hub version.
//
// The server changes nothing but the apiVersion, the fields of the converted Go type, labels and annotations. A field
// that the Go type of the version lacks is not converted; the server logs it once.
func Converting[H kube.Object](crd string, spokes ...Version[H]) Hook {
	c := conversion{name: crd, versions: []version{{empty: func() kube.Object { return apiobject.New[H]() }}}}
	c.errs.addIf(len(spokes) == 0, "only one version: pass a Spoke for each other version")
	for i, other := range spokes {
		c.errs.addIf(other.toHub == nil, "version %d lacks a function: use Spoke with two functions", i)
		if other.toHub != nil {
			c.versions = append(c.versions, other.version)
		}
	}
	return Hook{name: crd, protocol: c}
}

// ConvertingUnstructured returns a hook that converts the custom resources of a CustomResourceDefinition with the name
// crd without Go types. convert changes an object to the version, for example "v2". The current version is in its
// apiVersion, which the server changes afterwards. The rules of Spoke apply; a version that convert does not support is
// an error.
func ConvertingUnstructured(crd string, convert func(obj *unstructured.Unstructured, version string) error) Hook {
	return Hook{name: crd, protocol: conversion{name: crd, convert: convert}}
}

// conversion is the protocol of conversions.
type conversion struct {
	name    string                                         // of the CustomResourceDefinition
	convert func(*unstructured.Unstructured, string) error // without Go types

	// Of a conversion with Go types. The first version is the hub.
	kind     string
	versions []version
	errs     mistakes
}

// prepare implements protocol.
func (c conversion) prepare(cluster *kube.Cluster) (protocol, []error) {
	var errs mistakes
	group := c.group()
	errs.addIf(len(validation.IsDNS1123Subdomain(c.name)) > 0 || group == "",
		`the name must be that of a CustomResourceDefinition, for example "webapps.example.com"`)
	if c.versions == nil {
		errs.addIf(c.convert == nil, "the function is nil")
		return c, errs
	}
	prepared := conversion{name: c.name}
	errs = append(errs, c.errs...)
	for i, v := range c.versions {
		empty := v.empty()
		if isUnstructured(empty) {
			errs.addIf(true, "a Go type is unstructured: use ConvertingUnstructured")
			continue
		}
		if metaOf(empty) == nil {
			errs.addIf(true, "%T does not embed metav1.ObjectMeta", empty)
			continue
		}
		kind, err := cluster.KindOf(empty)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.name = kind.Version
		prepared.kind = cmp.Or(prepared.kind, kind.Kind)
		errs.addIf(kind.Group != group, "%T is of the group %q: the group of the CustomResourceDefinition is %q", empty,
			kind.Group, group)
		errs.addIf(kind.Kind != prepared.kind, "%T is a %s, and the hub is a %s: all versions must have one kind",
			empty, kind.Kind, prepared.kind)
		errs.addIf(i > 0 && prepared.version(v.name) != nil, "%T is version %s, which another Go type has: pass each "+
			"version once, and the hub not as a Spoke", empty, v.name)
		prepared.versions = append(prepared.versions, v)
	}
	return prepared, errs
}

func (c conversion) limits() (int64, time.Duration) { return maxConversionBytes, conversionTimeout }

func (c conversion) shape() reflect.Type { return nil }

// group returns the group of the CustomResourceDefinition.
func (c conversion) group() string {
	_, group, _ := strings.Cut(c.name, ".")
	return group
}

// review implements protocol. It converts one object after the other until one of them fails: the API server needs each
// of them.
func (c conversion) review(ctx context.Context, s *Server, body []byte, places *places) (any, string, error) {
	request, err := readConversion(body)
	if err != nil {
		return nil, "", err
	}
	answer := newResponse(request.uid)
	var last []byte
	if request.objects != nil {
		// The list is valid JSON, because the review is.
		_ = wire.EachItem(request.objects, func(object []byte) bool {
			var converted []byte
			last = object
			if converted, err = c.object(ctx, s, object, request.desired, places); err == nil {
				answer.add(converted)
				err = s.checkResponse(ctx, answer, places)
			}
			return err == nil
		})
	}
	if err == nil {
		return answer.end(metav1.Status{Status: metav1.StatusSuccess}), resultSuccess, nil
	}
	// The versions have any length.
	err = usercode.Error(fmt.Errorf("request.objects[%d]: %w", answer.objects, err))
	head, _ := readHeader(last, nil) // as far as it is valid
	s.log(ctx, slog.LevelError, c.name, "conversion failed", "webhook", c.name, "kind", short(head.Kind), "namespace",
		short(head.key().Namespace), "name", short(head.key().Name), "error", err)
	return newResponse(request.uid).end(metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: usercode.Text(err),
	}), resultOf(ctx, err), nil
}

// checkResponse returns an error if the response becomes larger than a review may be. A large one needs a slot of its
// own, as its review would.
func (s *Server) checkResponse(ctx context.Context, answer *response, places *places) error {
	switch {
	case len(answer.text) > maxConversionBytes:
		return fmt.Errorf("the converted objects have more than %d MiB", maxConversionBytes>>20)
	case len(answer.text) > maxBodyBytes && !slices.Contains(places.taken, s.large):
		return places.take(ctx, s.large)
	}
	return nil
}

// header is the part of an object that all versions have.
type header struct {
	APIVersion, Kind string
	Metadata         json.RawMessage
}

// readHeader reads the header of an object, and calls use for each other field unless it is nil. Of a field that the
// object has twice, the last one counts, as in Go's decoder.
func readHeader(raw []byte, use func(name string, value []byte) error) (header, error) {
	var h header
	err := eachField(raw, func(name string, value []byte) error {
		switch name {
		case "apiVersion":
			return json.Unmarshal(value, &h.APIVersion)
		case "kind":
			return json.Unmarshal(value, &h.Kind)
		case "metadata":
			h.Metadata = value
			return nil
		}
		if use == nil {
			return nil
		}
		return use(name, value)
	})
	return h, err
}

// eachField calls read for each field of an object. It returns an error of the JSON, or else the first one of read: a
// client can send the same mistake any number of times.
func eachField(raw []byte, read func(name string, value []byte) error) error {
	var problem error
	err := wire.Fields(raw, func(name string, value []byte) { problem = cmp.Or(problem, read(name, value)) })
	return cmp.Or(err, problem)
}

// key returns the key of an object, as far as the metadata is valid.
func (h header) key() kube.Key {
	var key struct{ Namespace, Name string }
	_ = json.Unmarshal(h.Metadata, &key)
	return kube.Key{Namespace: key.Namespace, Name: key.Name}
}

// object returns an object of a review in the desired version. Its errors name the object and the versions.
func (c conversion) object(
	ctx context.Context, s *Server, raw []byte, desired string, places *places,
) (converted []byte, err error) {
	from, err := readHeader(raw, nil)
	if err != nil {
		return nil, fmt.Errorf("convert an object to %s: %w", desired, err)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var fromVersion, toVersion schema.GroupVersion
	if err == nil {
		fromVersion, toVersion, err = c.parseVersions(from, desired)
	}
	if err == nil && fromVersion == toVersion {
		return raw, nil
	}
	release := func() {}
	if err == nil {
		release, err = c.reserve(ctx, s, raw, fromVersion.Version, places)
	}
	defer release()
	if err == nil {
		panicked := s.guard.Call("conversion of "+c.name, func() {
			if c.versions != nil {
				converted, err = c.convertTyped(raw, from, fromVersion.Version, toVersion)
			} else {
				converted, err = c.unstructured(raw, toVersion)
			}
		}, func() []any {
			return []any{
				"namespace", short(from.key().Namespace), "name", short(from.key().Name),
				"from", short(fromVersion.Version), "to", short(toVersion.Version),
			}
		})
		if panicked != nil {
			err = panicked
		}
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s %s from %s to %s: %w", from.Kind, from.key(), from.APIVersion, desired,
			usercode.Error(err))
	}
	return converted, nil
}

// reserve waits until an object may be decoded, and returns a function that must be called afterwards. It logs fields
// that the Go type lacks.
func (c conversion) reserve(
	ctx context.Context, s *Server, raw []byte, version string, places *places,
) (release func(), err error) {
	none := func() {}
	if len(raw) > maxBodyBytes {
		return none, fmt.Errorf("it has more than %d MiB", maxBodyBytes>>20)
	}
	t, unknown := reflect.TypeFor[any](), (func(string))(nil)
	if c.versions != nil {
		t = reflect.TypeOf(c.version(version).empty()).Elem()
		unknown = func(path string) { s.unknown.report(s.logger, c.name, version, path) }
	}
	size, err := s.shapes.Measure(raw, t, maxDecodedBytes, unknown)
	if err != nil {
		return none, err
	}
	return s.reserve(ctx, size, places)
}

// parseVersions returns the versions of a conversion, which are versions of the CustomResourceDefinition's group.
func (c conversion) parseVersions(from header, desired string) (fromVersion, toVersion schema.GroupVersion, err error) {
	if fromVersion, err = schema.ParseGroupVersion(from.APIVersion); err != nil {
		return fromVersion, toVersion, err
	}
	if toVersion, err = schema.ParseGroupVersion(desired); err != nil {
		return fromVersion, toVersion, err
	}
	for _, v := range []schema.GroupVersion{fromVersion, toVersion} {
		if v.Group != c.group() || v.Version == "" {
			return fromVersion, toVersion, fmt.Errorf("%s is not a version of the group %s", v, c.group())
		}
		if c.versions != nil && c.version(v.Version) == nil {
			return fromVersion, toVersion, fmt.Errorf("the program does not convert %s: it has %s", v,
				strings.Join(c.names(), ", "))
		}
	}
	if c.versions != nil && from.Kind != c.kind {
		return fromVersion, toVersion, fmt.Errorf("the kind is %q: want %s", from.Kind, c.kind)
	}
	return fromVersion, toVersion, nil
}

// unstructured returns an object in another version.
func (c conversion) unstructured(raw []byte, desired schema.GroupVersion) ([]byte, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	before := &unstructured.Unstructured{Object: map[string]any{
		"kind": content["kind"], "metadata": runtime.DeepCopyJSONValue(content["metadata"]),
	}}
	if err := c.convert(obj, desired.Version); err != nil {
		return nil, err
	}
	if obj.Object == nil {
		return nil, errors.New("the converter removed the object")
	}
	if got, want := obj.GetKind(), before.GetKind(); got != want {
		return nil, fmt.Errorf("kind was changed to %q: it must stay %q", got, want)
	}
	old, _ := before.Object["metadata"].(map[string]any)
	current, _ := obj.Object["metadata"].(map[string]any)
	if err := checkMeta(old, current); err != nil {
		return nil, err
	}
	obj.SetAPIVersion(desired.String())
	return json.Marshal(obj.Object)
}

// checkMeta returns an error for a field of the metadata that differs and that a conversion must keep.
func checkMeta(before, after map[string]any) error {
	fields := map[string]any{}
	maps.Copy(fields, before)
	maps.Copy(fields, after)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "labels" && name != "annotations" && !reflect.DeepEqual(before[name], after[name]) {
			return fmt.Errorf("metadata.%s was changed: a conversion may change only labels and annotations", name)
		}
	}
	return nil
}

// maxUnknown is the number of unknown fields that are logged.
const maxUnknown = 100

// unknownFields are the fields of objects that Go types lack.
type unknownFields struct {
	mu     sync.Mutex
	logged map[string]bool // guarded by mu
}

// report logs a field once. Those of the metadata are kept as they are.
func (u *unknownFields) report(logger *slog.Logger, crd, version, path string) {
	if strings.HasPrefix(path, "metadata.") {
		return
	}
	key := crd + " " + version + " " + path
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.logged[key] || len(u.logged) >= maxUnknown {
		return
	}
	if u.logged == nil {
		u.logged = map[string]bool{}
	}
	u.logged[key] = true
	logger.Warn("field not converted", "webhook", crd, "version", version, "field", path)
}
