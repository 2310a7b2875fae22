package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// codecs decodes request bodies and encodes objects. It does not change after newCodecs.
type codecs struct {
	scheme           *runtime.Scheme
	json, strictJSON *json.Serializer
	yaml, strictYAML *json.Serializer
	protobuf         *protobuf.Serializer
	// rawProtobuf encodes the frames of a watch.
	rawProtobuf *protobuf.RawSerializer
}

func newCodecs(kinds []*Kind) (*codecs, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion) // of options without a kind
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of metadata: %w", err)
	}
	if err := addEvictions(scheme); err != nil {
		return nil, fmt.Errorf("register the types of evictions: %w", err)
	}
	for _, kind := range kinds {
		if kind.custom() {
			continue
		}
		if err := kind.AddToScheme(scheme); err != nil {
			return nil, fmt.Errorf("register the type of %s: %w", kind.Kind, err)
		}
		if !scheme.Recognizes(kind.GroupVersionKind) {
			return nil, fmt.Errorf("register the type of %s: the function does not register %s", kind.Kind,
				kind.GroupVersionKind)
		}
	}
	serializer := func(options json.SerializerOptions) *json.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, options)
	}
	return &codecs{
		scheme: scheme,
		json:   serializer(json.SerializerOptions{}), strictJSON: serializer(json.SerializerOptions{Strict: true}),
		yaml:       serializer(json.SerializerOptions{Yaml: true}),
		strictYAML: serializer(json.SerializerOptions{Yaml: true, Strict: true}),
		protobuf:   protobuf.NewSerializer(scheme, scheme), rawProtobuf: protobuf.NewRawSerializer(scheme, scheme),
	}, nil
}

func (c *codecs) decoder(media mediaType, strict bool) runtime.Decoder {
	switch {
	case media == mediaProtobuf:
		return c.protobuf
	case media == mediaYAML && strict:
		return c.strictYAML
	case media == mediaYAML:
		return c.yaml
	case strict:
		return c.strictJSON
	}
	return c.json
}

// decode decodes an object of a kind, completes it with the kind's defaults, and returns the kind that the body names.
// A *runtime.StrictDecodingError comes with the object.
func (c *codecs) decode(
	kind *Kind, body []byte, media mediaType, strict bool,
) (Object, schema.GroupVersionKind, error) {
	into := kind.empty()
	expected := kind.GroupVersionKind
	decoded, actual, err := c.decoder(media, strict).Decode(body, &expected, into)
	if actual == nil {
		actual = &schema.GroupVersionKind{}
	}
	strictErr, isStrict := runtime.AsStrictDecodingError(err)
	if err != nil && (!isStrict || decoded == nil) {
		return nil, *actual, err
	}
	if decoded != runtime.Object(into) {
		return nil, *actual, fmt.Errorf("converting (%s) to (%s): unknown conversion",
			strings.TrimPrefix(fmt.Sprintf("%T", decoded), "*"), strings.TrimPrefix(kind.internalType(kind.Kind), "*"))
	}
	u, custom := into.(*unstructured.Unstructured)
	if !custom {
		into.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	} else if unknown, failed := kind.coerce(u, strict); failed != nil {
		return nil, *actual, failed
	} else if len(unknown) > 0 {
		if isStrict {
			unknown = append(strictErr.Errors(), unknown...)
		}
		err = runtime.NewStrictDecodingError(unknown)
	}
	if kind.Rules.Default != nil {
		kind.Rules.Default(into)
	}
	return into, *actual, err
}

// decodeOptions decodes the options in the body of a delete. They may have any group.
func (c *codecs) decodeOptions(body []byte, media mediaType, into *metav1.DeleteOptions) error {
	expected := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	decoded, actual, err := c.decoder(media, false).Decode(body, &expected, into)
	if runtime.IsNotRegisteredError(err) && actual.Kind == expected.Kind && media != mediaProtobuf {
		return yaml.Unmarshal(body, into) // which JSON is, too
	}
	if err == nil && decoded != runtime.Object(into) {
		err = errors.New("decoded object cannot be converted to DeleteOptions")
	}
	return err
}

// encode encodes an object that is not stored: a Status, a list, or metadata.
func (c *codecs) encode(obj runtime.Object, media mediaType) ([]byte, error) {
	var encoder runtime.Encoder
	switch media {
	case mediaYAML:
		encoder = c.yaml
	case mediaProtobuf:
		encoder = c.protobuf
	default:
		encoder = c.json
	}
	var buffer bytes.Buffer
	if err := encoder.Encode(obj, &buffer); err != nil {
		return nil, fmt.Errorf("encode a %T as %s: %w", obj, media, err)
	}
	return buffer.Bytes(), nil
}

// encoded returns a stored object's encoding, which the caller must not change. JSON ends with a newline.
func (c *codecs) encoded(r *record, media mediaType) ([]byte, error) {
	cache := &r.json
	switch media {
	case mediaProtobuf:
		cache = &r.protobuf
	case mediaYAML:
		return c.encode(r.obj, media)
	}
	if text := cache.Load(); text != nil {
		return *text, nil
	}
	text, err := c.encode(r.obj, media)
	if err != nil {
		return nil, err
	}
	cache.Store(&text)
	return text, nil
}

// equal reports whether two records have the same content, as the bytes in etcd decide in the real server.
func (c *codecs) equal(a, b *record) (bool, error) {
	u, ok := a.obj.(*unstructured.Unstructured)
	if ok && !mayEncodeEqually(u.Object, b.obj.(*unstructured.Unstructured).Object) {
		return false, nil // without the encoding of a, which has no new version yet and cannot be kept
	}
	x, err := c.encoded(a, mediaJSON)
	if err != nil {
		return false, err
	}
	y, err := c.encoded(b, mediaJSON)
	return bytes.Equal(x, y), err
}

// mayEncodeEqually reports whether two values of custom resources can have the same JSON: numbers of different types
// can.
func mayEncodeEqually(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, exists := b[key]; !exists || !mayEncodeEqually(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, mayEncodeEqually)
	case string, bool, nil:
		return a == b
	}
	switch b.(type) {
	case int64, float64:
		return true
	}
	return false
}
