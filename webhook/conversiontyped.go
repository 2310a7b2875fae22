package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// version is a version of a kind with its Go type.
type version struct {
	name  string
	empty func() kube.Object
	// toHub and fromHub are nil for the hub.
	toHub, fromHub func(from, to kube.Object) error
}

func (c conversion) version(name string) *version {
	for i := range c.versions {
		if c.versions[i].name == name {
			return &c.versions[i]
		}
	}
	return nil
}

func (c conversion) names() []string {
	var names []string
	for _, v := range c.versions {
		names = append(names, v.name)
	}
	return names
}

// convertTyped returns an object in another version.
func (c conversion) convertTyped(
	raw []byte, head header, from string, desired schema.GroupVersion,
) ([]byte, error) {
	source, target := c.version(from), c.version(desired.Version)
	obj := source.empty()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return nil, err
	}
	labels, annotations := maps.Clone(obj.GetLabels()), maps.Clone(obj.GetAnnotations())
	obj, err := convertObject(source, target, c.versions[0].empty, obj)
	if err != nil {
		return nil, err
	}
	meta := head.Metadata
	if len(meta) == 0 || !maps.Equal(labels, obj.GetLabels()) || !maps.Equal(annotations, obj.GetAnnotations()) {
		if meta, err = withLabels(head.Metadata, obj); err != nil {
			return nil, err
		}
	}
	return withMeta(obj, header{APIVersion: desired.String(), Kind: head.Kind, Metadata: meta})
}

// withMeta encodes an object with other metadata. The metadata of obj is lost: it can be larger than the rest.
func withMeta(obj kube.Object, head header) ([]byte, error) {
	*metaOf(obj) = metav1.ObjectMeta{}
	content, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	apiVersion, _ := json.Marshal(head.APIVersion) // a string
	kind, _ := json.Marshal(head.Kind)             // a string
	encoded := make([]byte, 0, len(content)+len(head.Metadata)+100)
	encoded = fmt.Appendf(encoded, `{"apiVersion":%s,"kind":%s,"metadata":%s`, apiVersion, kind, head.Metadata)
	if err := wire.Fields(content, func(name string, value []byte) {
		switch name {
		case "apiVersion", "kind", "metadata":
			return
		}
		key, _ := json.Marshal(name) // a string
		encoded = append(append(append(append(encoded, ','), key...), ':'), value...)
	}); err != nil {
		return nil, err
	}
	return append(encoded, '}'), nil
}

// convertObject returns obj in the version target, by way of the hub version.
func convertObject(source, target *version, newHub func() kube.Object, obj kube.Object) (kube.Object, error) {
	for _, step := range []struct {
		convert func(from, to kube.Object) error
		empty   func() kube.Object
	}{{source.toHub, newHub}, {target.fromHub, target.empty}} {
		if step.convert == nil { // source or target is the hub
			continue
		}
		to := step.empty()
		before := *metaOf(obj)
		before.DeepCopyInto(metaOf(to))
		if err := step.convert(obj, to); err != nil {
			return nil, err
		}
		if err := checkObjectMeta(before, *metaOf(to)); err != nil {
			return nil, err
		}
		obj = to
	}
	return obj, nil
}

// metaOf returns the metadata of an object, or nil if its type does not embed metav1.ObjectMeta.
func metaOf(obj kube.Object) *metav1.ObjectMeta {
	accessor, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil
	}
	meta, _ := accessor.GetObjectMeta().(*metav1.ObjectMeta)
	return meta
}

// checkObjectMeta is checkMeta for the metadata of typed objects.
func checkObjectMeta(before, after metav1.ObjectMeta) error {
	before.Labels, before.Annotations, after.Labels, after.Annotations = nil, nil, nil, nil
	if reflect.DeepEqual(before, after) {
		return nil
	}
	old, oldErr := runtime.DefaultUnstructuredConverter.ToUnstructured(&before)
	current, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&after)
	return cmp.Or(oldErr, err, checkMeta(old, current))
}

// withLabels returns the metadata of the original with the labels and annotations of the converted object. Other fields
// stay as they are, also those that metav1.ObjectMeta lacks.
func withLabels(original json.RawMessage, obj metav1.Object) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if len(original) > 0 {
		if err := json.Unmarshal(original, &fields); err != nil {
			return nil, err
		}
	}
	if fields == nil { // there is no metadata, or it is null
		fields = map[string]json.RawMessage{}
	}
	for name, entries := range map[string]map[string]string{
		"labels":      obj.GetLabels(),
		"annotations": obj.GetAnnotations(),
	} {
		if len(entries) == 0 {
			delete(fields, name)
			continue
		}
		content, err := json.Marshal(entries)
		if err != nil {
			return nil, err
		}
		fields[name] = content
	}
	return json.Marshal(fields)
}
