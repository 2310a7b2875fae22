package wire_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A watch is read without decoding its objects. Only the needed ones are decoded.
func ExampleEventReader() {
	body := strings.NewReader(`
{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","resourceVersion":"7","managedFields":[{}]},"spec":{"nodeName":"node-1"}}}
{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"9"}}}
`)
	cut, err := wire.NewCut(reflect.TypeFor[*corev1.Pod](), wire.ManagedFields)
	if err != nil {
		panic(err)
	}
	pods, err := wire.NewDecoder[*corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"))
	if err != nil {
		panic(err)
	}
	events := wire.NewEventReader(body, cut)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Type, event.Object.Key, event.Object.ResourceVersion, len(event.Object.Bytes), "bytes")
		if event.Object.Key.Name == "a" {
			pod, err := pods.Decode(event.Object)
			if err != nil {
				panic(err)
			}
			fmt.Println("runs on", pod.Spec.NodeName)
		}
	}
	// Output:
	// ADDED shop/a 7 126 bytes
	// runs on node-1
	// BOOKMARK  9 67 bytes
}

// Differences are found without decoding.
func ExampleComparer() {
	before, err := wire.Parse([]byte(`{"metadata":{"name":"a","labels":{"app":"x"}},"status":{"ready":1}}`), nil)
	if err != nil {
		panic(err)
	}
	after, err := wire.Parse([]byte(`{"metadata":{"name":"a","labels":{"app":"y"}},"status":{"ready":2}}`), nil)
	if err != nil {
		panic(err)
	}
	changed := wire.NewComparer(reflect.TypeFor[*corev1.Pod]()).Compare(before, after, kube.ChangedAnything)
	fmt.Println(changed, changed.Has(kube.ChangedSpec))
	// Output: labels,status false
}
