package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func protobufSerializer() (*runtime.Scheme, *protobuf.Serializer) {
	types := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(types))
	utilruntime.Must(metav1.AddMetaToScheme(types))
	return types, protobuf.NewSerializer(types, types)
}

// fromProtobuf returns an object in protobuf as decoded JSON.
func fromProtobuf(body []byte) any {
	_, serializer := protobufSerializer()
	obj, _, err := serializer.Decode(body, nil, nil)
	if err != nil {
		return err.Error()
	}
	return decode(mustJSON(obj))
}

// toProtobuf returns a body in JSON as protobuf. Bodies that are no valid JSON of a type with protobuf stay as they are.
func toProtobuf(body string) string {
	types, serializer := protobufSerializer()
	var typeMeta metav1.TypeMeta
	if json.Unmarshal([]byte(body), &typeMeta) != nil {
		return body
	}
	obj, err := types.New(typeMeta.GroupVersionKind())
	if err != nil || json.Unmarshal([]byte(body), obj) != nil {
		return body
	}
	obj.GetObjectKind().SetGroupVersionKind(typeMeta.GroupVersionKind())
	var encoded bytes.Buffer
	if serializer.Encode(obj, &encoded) != nil {
		return body
	}
	return encoded.String()
}

// protobufEvents passes on the events of a watch in protobuf, as JSON, until the stream ends.
func protobufEvents(stream io.ReadCloser, events chan<- json.RawMessage) {
	frames := protobuf.LengthDelimitedFramer.NewFrameReader(stream)
	frame := make([]byte, 1<<20)
	for {
		n, err := frames.Read(frame)
		if err != nil {
			return
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame[:n]); err != nil {
			events <- json.RawMessage(fmt.Sprintf("%q", "cannot decode an event: "+err.Error()))
			continue
		}
		events <- json.RawMessage(mustJSON(map[string]any{"type": event.Type, "object": fromProtobuf(event.Object.Raw)}))
	}
}

func isProtobuf(media string) bool { return strings.HasPrefix(media, runtime.ContentTypeProtobuf) }
