package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// deepCut has every kind of path. cutByHand does the same to a decoded Pod.
func deepCut(tb testing.TB) *Cut {
	tb.Helper()
	cut, err := NewCutExceptApplied(reflect.TypeFor[*corev1.Pod](), "helm",
		ManagedFields, LastApplied, `metadata.labels["app"]`, "spec.containers.env", "spec.volumes.configMap.name",
		`spec.nodeSelector["kubernetes.io/os"]`, `spec.containers.resources.limits["cpu"]`, "status.conditions")
	if err != nil {
		tb.Fatal(err)
	}
	return cut
}

func cutByHand(pod *corev1.Pod) {
	pod.ManagedFields = nil
	delete(pod.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	delete(pod.Labels, "app")
	delete(pod.Spec.NodeSelector, "kubernetes.io/os")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = nil
		delete(pod.Spec.Containers[i].Resources.Limits, "cpu")
	}
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].ConfigMap; c != nil {
			c.Name = ""
		}
	}
	pod.Status.Conditions = nil
}

// checkMetadata compares o with the decoded metadata.
func checkMetadata(t *testing.T, want *metav1.ObjectMeta, o *Object) {
	t.Helper()
	var w Object
	w.Format, w.Bytes = o.Format, o.Bytes
	w.setMetadata(want)
	w.Manager, w.TiedManager = o.Manager, o.TiedManager // checked by checkManager, which needs the managedFields before the cut
	if diff := cmp.Diff(&w, o); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	checkLists(t, want, o)
	second, err := Read(o.Format, o.Bytes)
	if err != nil {
		t.Fatalf("Read of what Parse returned: %v", err)
	}
	second.Bytes, second.Manager, second.TiedManager = o.Bytes, o.Manager, o.TiedManager // may have been cut
	if diff := cmp.Diff(*o, second); diff != "" {
		t.Errorf("Read of what Parse returned (-Parse +Read):\n%s", diff)
	}
}

func checkLists(t *testing.T, want *metav1.ObjectMeta, o *Object) {
	t.Helper()
	same := equality.Semantic.DeepEqual
	if got := o.Labels(); !same(want.Labels, got) {
		t.Errorf("Labels() = %q, want %q", got, want.Labels)
	}
	if got := o.Annotations(); !same(want.Annotations, got) {
		t.Errorf("Annotations() = %q, want %q", got, want.Annotations)
	}
	if got := o.Finalizers(); !same(want.Finalizers, got) {
		t.Errorf("Finalizers() = %q, want %q", got, want.Finalizers)
	}
	if got := o.OwnerReferences(); !same(want.OwnerReferences, got) {
		t.Errorf("OwnerReferences() = %+v, want %+v", got, want.OwnerReferences)
	}
}

// checkManager compares the last writer with the decoded managedFields. Entries that only the generated decoders can
// read may be ignored.
func checkManager(t *testing.T, entries []metav1.ManagedFieldsEntry, o *Object) {
	t.Helper()
	for _, name := range []string{o.Manager, o.TiedManager} {
		if name != "" && !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == name }) {
			t.Errorf("a last writer is %q, which is not one of the managers", name)
		}
	}
	if o.TiedManager != "" && o.TiedManager == o.Manager {
		t.Errorf("%q wrote last twice", o.Manager)
	}
}

func scribble(b []byte) {
	for i := range b {
		b[i] = 'X'
	}
}

// checkDecode decodes o and compares. It overwrites o's bytes.
func checkDecode(t *testing.T, want *corev1.Pod, o *Object) {
	t.Helper()
	d, err := NewDecoder[*corev1.Pod](podKind)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Decode(o)
	if err != nil {
		t.Fatalf("Decode fails for what the real decoder accepts: %v", err)
	}
	scribble(o.Bytes)
	if !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("Decode (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func FuzzProtobuf(f *testing.F) {
	pod := realPod()
	f.Add(asProto(f, pod, podKind))
	pod.ManagedFields, pod.DeletionTimestamp = nil, new(fixtureTime)
	f.Add(asProto(f, pod, podKind))
	f.Add(asProto(f, realSecret(), secretKind))
	f.Add(asProto(f, realDeployment(), deploymentKind))
	f.Add(asProto(f, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"app": "b", "": ""}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/os": "x"}, Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "e"}}}}}}, podKind))
	f.Add([]byte("k8s\x00"))
	// A label, an annotation and managedFields; then a label with text that extends past its entry.
	f.Add([]byte("k8s\x00\x12\x2a\x0a\x28\x0a\x01a\x1a\x01n\x38\x05\x4a\x02\x08\x07\x5a\x06\x0a\x01k\x12\x01v\x62\x06\x0a\x01k\x12\x01v\x6a\x03\x1a\x01o\x8a\x01\x03\x0a\x01m"))
	// A node selector that extends into a container with an env that is cut.
	f.Add([]byte("k8s\x00\x12\x11\x12\x0f\x3a\x03\x0a\x0ac\x12\x08\x0a\x01c\x3a\x03\x0a\x01e"))
	f.Add([]byte("k8s\x00\x12\x0d\x0a\x0b\x5a\x09\x0a\x01k\x12\x01v\x12\x01w"))
	f.Add([]byte("k8s\x00\x12\x11\x0a\x0f\x5a\x03\x0a\x0ak\x8a\x01\x03\x0a\x01m\x5a\x02\x0a\x00"))
	f.Add([]byte("k8s\x00\x12\x16\x0a\x03\x0a\x01a\x12\x0f\x12\x08\x0a\x01c\x3a\x03\x0a\x01e\x3a\x03\x0a\x01z\x3a\x00"))
	f.Add([]byte("k8s\x00\x12\x0f\x0a\x05\x0a\x01a\x1a\x00\x0a\x06\x1a\x01b\x32\x01c"))
	deep, managed := deepCut(f), mustCut(f, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	metaOnly := mustCut(f, reflect.TypeFor[*metav1.PartialObjectMetadata](), ManagedFields)
	f.Fuzz(func(t *testing.T, data []byte) {
		want := &corev1.Pod{}
		var unknown runtime.Unknown
		body, isProto := bytes.CutPrefix(data, []byte(protoPrefix))
		if !isProto || len(body) == 0 {
			if len(data) > 0 && data[0] != '{' && skipSpace(data, 0) == 0 {
				if _, err := Parse(data, nil); err == nil {
					t.Fatal("Parse accepted data that is not an object")
				}
			}
			return
		}
		if unknown.Unmarshal(body) != nil || want.Unmarshal(unknown.Raw) != nil {
			o, err := Parse(data, nil)
			if err != nil {
				return
			}
			d, _ := NewDecoder[*corev1.Pod](podKind)
			if _, err := d.Decode(o); err == nil {
				t.Fatal("accepted, although the real decoder rejects it")
			}
			return
		}
		saved, managers := bytes.Clone(data), want.ManagedFields
		for _, cut := range []*Cut{nil, managed, metaOnly, deep} {
			want := want.DeepCopy()
			switch cut {
			case managed, metaOnly:
				want.ManagedFields = nil
			case deep:
				cutByHand(want)
			}
			o, err := Parse(bytes.Clone(data), cut)
			if err != nil && cut == metaOnly && strings.Contains(err.Error(), "only the kind's own decoder") {
				continue
			}
			if err != nil && cut == nil && strings.Contains(err.Error(), "only the kind's own decoder") {
				continue
			}
			if err != nil {
				t.Fatalf("Parse rejects what the real decoder accepts: %v", err)
			}
			checkMetadata(t, &want.ObjectMeta, o)
			checkManager(t, managers, o)
			checkDecode(t, want, o)
		}
		if !bytes.Equal(saved, data) {
			t.Error("Parse changed its data")
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add(asJSON(f, realPod(), podKind))
	f.Add(asJSON(f, realSecret(), secretKind))
	f.Add(asJSON(f, realDeployment(), deploymentKind))
	f.Add(realCRJSON())
	for _, s := range []string{
		`{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{"name":"a"},"metadata":{"namespace":"b"}}`, `{"metadata":null}`,
		`{"\u006detadata":{"n\u0061me":"\u00e4"}}`, `{"metadata":{"generation":1e0}}`, `{"metadata":{"deletionTimestamp":"0001-01-01T00:00:00Z"}}`,
		"{\"metadata\":{\"name\":\"\xff\"}}", ` { "metadata" : { "managedFields" : [ { } ] , "labels":{"app":"a","b":null}} , "x":[1,-0.5e+3,true,{}]} `,
		`{"metadata":{"managedFields":1,"name":"a"},"spec":{"containers":[{"env":1,"name":"x"},{"env":[]}]}}`,
		`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"1","generation":2,"labels":{"app":"x","y":"z"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"","q":"r"},"managedFields":[{}],"finalizers":["f"],"ownerReferences":[{"name":"o","controller":true}]}}`,
		`{"spec":{"nodeSelector":{"kubernetes.io/os":"a"},"containers":[{"env":[],"name":"c"},{"resources":{"limits":{"cpu":"1","memory":"2"}}}],"volumes":[{"name":"v","configMap":{"name":"x"}}]},"status":{"conditions":[],"phase":"P"}}`,
		`{"metadata":{"labels":{"a":1},"finalizers":[null]}}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, `{"a":1e999}`,
	} {
		f.Add([]byte(s))
	}
	deep, managed := deepCut(f), mustCut(f, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	podDecoder, _ := NewDecoder[*corev1.Pod](podKind)
	looseDecoder, _ := NewDecoder[*unstructured.Unstructured](podKind)
	f.Fuzz(func(t *testing.T, data []byte) {
		start := skipSpace(data, 0)
		if start == len(data) || data[start] != '{' {
			return // protobuf, or null, which this package rejects
		}
		var pod corev1.Pod
		var loose unstructured.Unstructured
		podErr, looseErr := utiljson.Unmarshal(data, &pod), utiljson.Unmarshal(data, &loose.Object)
		saved := bytes.Clone(data)
		o, err := Parse(data, nil)
		if err != nil {
			if strings.Contains(err.Error(), "ambiguous") || podErr != nil && looseErr != nil {
				return
			}
			t.Fatalf("Parse rejects what a real decoder accepts: %v (typed: %v, unstructured: %v)", err, podErr, looseErr)
		}
		_, gotPodErr := podDecoder.Decode(o)
		gotLoose, gotLooseErr := looseDecoder.Decode(o)
		if (podErr == nil) != (gotPodErr == nil) || (looseErr == nil) != (gotLooseErr == nil) {
			t.Fatalf("errors: typed %v, want %v; unstructured %v, want %v", gotPodErr, podErr, gotLooseErr, looseErr)
		}
		if looseErr == nil {
			if loose.GetKind() == "" {
				loose.SetKind(podKind.Kind)
			}
			if loose.GetAPIVersion() == "" {
				loose.SetAPIVersion(podKind.GroupVersion().String())
			}
			if diff := cmp.Diff(loose.Object, gotLoose.Object); diff != "" {
				t.Errorf("unstructured (-want +got):\n%s", diff)
			}
		}
		if podErr != nil {
			if looseErr == nil {
				var partial metav1.PartialObjectMetadata
				if utiljson.Unmarshal(data, &partial) != nil {
					checkMetadata(t, looseMetadata(&loose), o)
				}
			}
			return
		}
		pod.TypeMeta = metav1.TypeMeta{}
		for _, cut := range []*Cut{nil, managed, deep} {
			want := pod.DeepCopy()
			switch cut {
			case managed:
				want.ManagedFields = nil
			case deep:
				cutByHand(want)
			}
			o, err := Parse(bytes.Clone(data), cut)
			if err != nil {
				t.Fatalf("Parse rejects what the real decoder accepts: %v", err)
			}
			if !json.Valid(o.Bytes) {
				t.Fatalf("the cut made invalid JSON: %q", o.Bytes)
			}
			checkMetadata(t, &want.ObjectMeta, o)
			checkDecode(t, want, o)
		}
		if !bytes.Equal(saved, data) {
			t.Error("Parse changed its data")
		}
	})
}

// realEvents reads a watch with client-go's decoders, until an error.
func realEvents(data []byte, proto bool) (events []watch.Event) {
	jsonDecoder := runtimejson.NewSerializerWithOptions(runtimejson.DefaultMetaFactory, clientscheme.Scheme, clientscheme.Scheme, runtimejson.SerializerOptions{})
	body := io.NopCloser(bytes.NewReader(data))
	d := restwatch.NewDecoder(streaming.NewDecoder(runtimejson.Framer.NewFrameReader(body), jsonDecoder), jsonDecoder)
	if proto {
		raw := protobuf.NewRawSerializer(clientscheme.Scheme, clientscheme.Scheme)
		d = restwatch.NewDecoder(streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(body), raw), serializer())
	}
	for {
		kind, obj, err := d.Decode()
		if err != nil {
			return events
		}
		events = append(events, watch.Event{Type: kind, Object: obj})
	}
}

func FuzzEvents(f *testing.F) {
	pod, status := asProto(f, realPod(), podKind), &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	f.Add(append(frame(f, watch.Added, pod), frame(f, watch.Error, asProto(f, status, metav1.Unversioned.WithKind("Status")))...))
	f.Add(append(frame(f, watch.Bookmark, asProto(f, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}, podKind)), 0, 0, 1, 0))
	f.Add(append(document(watch.Added, realCRJSON()), document(watch.Modified, asJSON(f, realPod(), podKind))...))
	f.Add([]byte(`{"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}},"type":"ADDED"} {"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`))
	f.Add([]byte("{\n\"type\":\n\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}\n}{\"type\":\"GONE\"}"))
	f.Add([]byte("{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\\\"}\"}}}\n{\"type\":\"DELETED\",\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\"},\"object\":null}"))
	small := asProto(f, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, podKind)
	f.Add(append(frame(f, watch.Added, small), frame(f, watch.Deleted, small)...))
	f.Add([]byte("<html>"))
	f.Add([]byte{0xd9, 0xd9, 0xf7, 0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		proto := len(data) > 0 && data[0] < ' ' && skipSpace(data, 0) == 0
		r := NewEventReader(iotestOneByte{bytes.NewReader(data)}, nil)
		for i, want := range realEvents(data, proto) {
			got, err := r.Next()
			if err != nil {
				if strings.Contains(err.Error(), "ambiguous") || strings.Contains(err.Error(), "only the kind's own decoder") {
					return
				}
				if want.Type == watch.Error {
					if _, ok := want.Object.(*metav1.Status); !ok {
						return // an error event without a status
					}
				}
				t.Fatalf("event %d: %v, although the real decoder accepts it: %+v", i, err, want)
			}
			if got.Type != want.Type {
				t.Fatalf("event %d is %s, want %s", i, got.Type, want.Type)
			}
			if got.Status != nil {
				if status, ok := want.Object.(*metav1.Status); ok && !equality.Semantic.DeepEqual(status, got.Status) {
					t.Errorf("event %d (-want +got):\n%s", i, cmp.Diff(status, got.Status))
				}
				continue
			}
			if meta, ok := want.Object.(metav1.ObjectMetaAccessor); ok {
				if m, ok := meta.GetObjectMeta().(*metav1.ObjectMeta); ok {
					checkMetadata(t, m, got.Object)
				}
			}
			if pod, ok := want.Object.(*corev1.Pod); ok {
				pod.TypeMeta = metav1.TypeMeta{}
				checkDecode(t, pod, got.Object.Clone())
			}
		}
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		if most := max(2*len(data), startWindow); len(r.win.buf) > most {
			t.Errorf("the buffer has %d bytes for %d bytes of data", len(r.win.buf), len(data))
		}
	})
}

// iotestOneByte is a reader that reads up to 7 bytes at a time.
type iotestOneByte struct{ r io.Reader }

func (r iotestOneByte) Read(p []byte) (int, error) { return r.r.Read(p[:min(7, len(p))]) }

func FuzzList(f *testing.F) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c", RemainingItemCount: new(int64(4))}, Items: []corev1.Pod{*realPod(), {}}}
	f.Add(asProto(f, list, corev1.SchemeGroupVersion.WithKind("PodList")))
	f.Add(asJSON(f, list, corev1.SchemeGroupVersion.WithKind("PodList")))
	tiny := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
	f.Add(asProto(f, tiny, corev1.SchemeGroupVersion.WithKind("PodList")))
	f.Add(asProto(f, &metav1.Status{Code: 410}, metav1.Unversioned.WithKind("Status")))
	f.Add(asJSON(f, &metav1.Status{Code: 410}, metav1.Unversioned.WithKind("Status")))
	for _, s := range []string{
		`{"items":null,"kind":"PodList","apiVersion":"v1"}`, `{"items":[{},{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"3"},"kind":"PodList","apiVersion":"v1"} `,
		`{"kind":"PodList","apiVersion":"v1"}x`, `{"kind":"PodList","apiVersion":"v1","items":[,]}`, `{"kind":"PodList","apiVersion":"v1","\u0069tems":[{}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []*Object
		var window int
		meta, err := ReadList(iotestOneByte{bytes.NewReader(data)}, nil, func(o *Object) error {
			got = append(got, o.Clone())
			window += len(o.Bytes)
			return nil
		})
		var want corev1.PodList
		var realErr error
		if bytes.HasPrefix(data, []byte(protoPrefix)) {
			_, _, realErr = serializer().Decode(data, nil, &want)
		} else {
			realErr = utiljson.Unmarshal(data, &want)
		}
		if realErr != nil || err != nil {
			return // many lists are rejected on purpose; the unit tests check that valid lists are accepted
		}
		if want.Kind != "" && want.Kind != "PodList" {
			return
		}
		if diff := cmp.Diff(want.ListMeta, meta); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if len(want.Items) != len(got) {
			t.Fatalf("%d items, want %d", len(got), len(want.Items))
		}
		for i := range got {
			checkMetadata(t, &want.Items[i].ObjectMeta, got[i])
			want.Items[i].TypeMeta = metav1.TypeMeta{}
			checkDecode(t, &want.Items[i], got[i])
		}
		if window > len(data)+2*len(got) {
			t.Errorf("items of %d bytes from a list of %d", window, len(data))
		}
	})
}
