package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// robot is a kind with a spec of the type S.
type robot[S any] = apitest.Object[S]

// The specs of three versions; v2 is the hub.
type (
	specV1 struct {
		Size string `json:"size,omitempty"` // LENGTHxWIDTH
	}
	specV2 struct {
		Length string   `json:"length,omitempty"`
		Width  string   `json:"width,omitempty"`
		Arms   []armV2  `json:"arms,omitempty"`
		Limit  *int64   `json:"limit,omitempty"`
		Names  []string `json:"names,omitempty"`
	}
	armV2  struct{ Joints int }
	specV3 struct {
		Body specV2 `json:"body"`
	}
	robotV1 = *robot[specV1]
	robotV2 = *robot[specV2]
	robotV3 = *robot[specV3]
)

const restAnnotation = "example.com/v2"

// v1ToV2 and v2ToV1 keep the fields that v1 lacks in an annotation.
func v1ToV2(from robotV1, to robotV2) error {
	if kept, ok := from.Annotations[restAnnotation]; ok {
		if err := json.Unmarshal([]byte(kept), &to.Spec); err != nil {
			return field.Invalid(field.NewPath("metadata", "annotations").Key(restAnnotation), kept, err.Error())
		}
		delete(to.Annotations, restAnnotation)
	}
	if from.Spec.Size == "" {
		return nil
	}
	var ok bool
	if to.Spec.Length, to.Spec.Width, ok = strings.Cut(from.Spec.Size, "x"); !ok {
		return field.Invalid(field.NewPath("spec", "size"), from.Spec.Size, "want LENGTHxWIDTH")
	}
	return nil
}

func v2ToV1(from robotV2, to robotV1) error {
	if from.Spec.Length != "" || from.Spec.Width != "" {
		to.Spec.Size = from.Spec.Length + "x" + from.Spec.Width
	}
	kept := from.Spec
	kept.Length, kept.Width = "", ""
	content, err := json.Marshal(kept)
	if string(content) != "{}" {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, restAnnotation, string(content))
	}
	return err
}

func v3ToV2(from robotV3, to robotV2) error { to.Spec = from.Spec.Body; return nil }
func v2ToV3(from robotV2, to robotV3) error { to.Spec.Body = from.Spec; return nil }

const robotsCRD = "robots.example.com"

func robotHook() Hook { return Converting(robotsCRD, Spoke(v1ToV2, v2ToV1), Spoke(v3ToV2, v2ToV3)) }

// addRobots registers the versions, and kinds for mistakes.
func addRobots(s *runtime.Scheme) error {
	add := func(group, version, kind string, obj runtime.Object) {
		s.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, obj)
	}
	add("example.com", "v1", "Robot", &robot[specV1]{})
	add("example.com", "v2", "Robot", &robot[specV2]{})
	add("example.com", "v3", "Robot", &robot[specV3]{})
	add("other.com", "v4", "Robot", &robot[int]{})
	add("example.com", "v5", "Machine", &robot[string]{})
	return nil
}

func serveRobots(tb testing.TB, logger *slog.Logger, hooks ...Hook) *Server {
	tb.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, addRobots)
	if err != nil {
		tb.Fatal(err)
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	cluster.SetLogger(logger)
	s, err := New(Config{Cluster: cluster, Hooks: hooks})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// post sends a body, and returns the status and the body of the response.
func post(tb testing.TB, s http.Handler, path string, body []byte) (int, []byte) {
	tb.Helper()
	req := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w.Code, bytes.TrimSpace(w.Body.Bytes())
}

// convert sends a conversion review, and returns the converted objects or the text of the failure.
func convert(tb testing.TB, s http.Handler, desired string, objects ...string) ([]string, string) {
	tb.Helper()
	request := &apiextensionsv1.ConversionRequest{UID: "1", DesiredAPIVersion: desired}
	for _, object := range objects {
		request.Objects = append(request.Objects, runtime.RawExtension{Raw: []byte(object)})
	}
	review := &apiextensionsv1.ConversionReview{Request: request}
	review.APIVersion, review.Kind = "apiextensions.k8s.io/v1", "ConversionReview"
	body, err := json.Marshal(review)
	if err != nil {
		tb.Fatal(err)
	}
	code, text := post(tb, s, "/"+robotsCRD, body)
	answer := &apiextensionsv1.ConversionReview{}
	if code != http.StatusOK || json.Unmarshal(text, answer) != nil || answer.GroupVersionKind() != review.GroupVersionKind() || answer.Request != nil || answer.Response.UID != "1" {
		tb.Fatalf("status %d: %s", code, text)
	}
	if answer.Response.Result.Status != metav1.StatusSuccess {
		if answer.Response.Result.Status != metav1.StatusFailure || len(answer.Response.ConvertedObjects) > 0 || answer.Response.Result.Message == "" {
			tb.Fatalf("the failure is %s", text)
		}
		return nil, answer.Response.Result.Message
	}
	if len(answer.Response.ConvertedObjects) != len(objects) {
		tb.Fatalf("%d objects of %d", len(answer.Response.ConvertedObjects), len(objects))
	}
	var converted []string
	for _, object := range answer.Response.ConvertedObjects {
		converted = append(converted, string(object.Raw))
	}
	return converted, ""
}

// robotJSON returns a Robot with metadata of all sorts, one field of which metav1.ObjectMeta lacks.
func robotJSON(version, spec string) string {
	return `{"apiVersion":"example.com/` + version + `","kind":"Robot","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","finalizers":["a.example.com/b"],` +
		`"generation":3,"labels":{"a":"b"},"later":[1],"managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{}}}],"name":"one",` +
		`"namespace":"shop","resourceVersion":"7","uid":"u"},"spec":` + spec + `}`
}

func TestConversions(t *testing.T) {
	t.Parallel()
	annotated := func(object string) string {
		return strings.Replace(object, `"metadata":{`, `"metadata":{"annotations":{"example.com/v2":"{\"arms\":[{\"Joints\":2}]}"},`, 1)
	}
	s := serveRobots(t, nil, robotHook())
	for name, test := range map[string]struct{ to, object, want string }{
		"spoke to hub":       {"v2", robotJSON("v1", `{"size":"1x2"}`), robotJSON("v2", `{"length":"1","width":"2"}`)},
		"hub to spoke":       {"v1", robotJSON("v2", `{"length":"1","width":"2"}`), robotJSON("v1", `{"size":"1x2"}`)},
		"spoke to spoke":     {"v3", robotJSON("v1", `{"size":"1x2"}`), robotJSON("v3", `{"body":{"length":"1","width":"2"}}`)},
		"added annotation":   {"v1", robotJSON("v2", `{"length":"1","arms":[{"Joints":2}]}`), annotated(robotJSON("v1", `{"size":"1x"}`))},
		"removed annotation": {"v2", annotated(robotJSON("v1", `{"size":"1x"}`)), robotJSON("v2", `{"length":"1","arms":[{"Joints":2}]}`)},
		"metadata of null": {
			"v1", `{"apiVersion":"example.com/v2","kind":"Robot","metadata":null,"spec":{"arms":[{"Joints":2}]}}`,
			`{"apiVersion":"example.com/v1","kind":"Robot","metadata":{"annotations":{"example.com/v2":"{\"arms\":[{\"Joints\":2}]}"}},"spec":{}}`,
		},
		"identity": {"v1", robotJSON("v1", `{"later":1}`), robotJSON("v1", `{"later":1}`)},
	} {
		converted, failure := convert(t, s, "example.com/"+test.to, test.object)
		if failure != "" || !sameJSON(converted[0], test.want) {
			t.Errorf("%s: %s %s, want %s", name, failure, converted, test.want)
		}
	}
	// A review can have objects of several versions.
	objects := []string{robotJSON("v3", `{"body":{}}`), robotJSON("v2", `{"length":"1"}`), robotJSON("v1", `{}`)}
	converted, failure := convert(t, s, "example.com/v2", objects...)
	if failure != "" || !sameJSON(converted[0], robotJSON("v2", "{}")) || !sameJSON(converted[1], objects[1]) || !sameJSON(converted[2], robotJSON("v2", "{}")) {
		t.Error(failure, converted)
	}
	if converted, failure := convert(t, s, "example.com/v2"); failure != "" || len(converted) > 0 {
		t.Error(failure, converted)
	}
}

func sameJSON(a, b string) bool {
	var values [2]any
	if json.Unmarshal([]byte(a), &values[0]) != nil || json.Unmarshal([]byte(b), &values[1]) != nil {
		return false
	}
	return reflect.DeepEqual(values[0], values[1])
}

// A failure names the object, both versions and the field.
func TestFailedConversions(t *testing.T) {
	t.Parallel()
	with := func(toHub func(robotV1, robotV2) error) Hook { return Converting(robotsCRD, Spoke(toHub, v2ToV1)) }
	good := robotJSON("v1", `{"size":"1x2"}`)
	const prefix = "convert Robot shop/one from example.com/v1 to example.com/v2: "
	for name, test := range map[string]struct {
		hook    Hook
		objects []string
		to      string
		want    string
	}{
		"field error":        {objects: []string{robotJSON("v1", `{"size":"1"}`)}, want: prefix + `spec.size: Invalid value: "1": want LENGTHxWIDTH`},
		"second object":      {objects: []string{good, robotJSON("v1", `{"size":"1"}`)}, want: "request.objects[1]: " + prefix + "spec.size: "},
		"panic":              {hook: with(func(robotV1, robotV2) error { panic("oops") }), want: prefix + "conversion of robots.example.com panicked: oops"},
		"wrong type":         {objects: []string{robotJSON("v1", `{"size":[]}`)}, want: prefix + "json: cannot unmarshal array into Go struct field specV1.spec.size of type string"},
		"changed name":       {hook: with(func(_ robotV1, to robotV2) error { to.Name = "two"; return nil }), want: prefix + "metadata.name was changed"},
		"changed owners":     {hook: with(func(_ robotV1, to robotV2) error { to.Finalizers = nil; return nil }), want: prefix + "metadata.finalizers was changed"},
		"metadata gone":      {hook: with(func(_ robotV1, to robotV2) error { to.ObjectMeta = metav1.ObjectMeta{}; return nil }), want: prefix + "metadata.creationTimestamp was changed"},
		"changed source":     {hook: with(func(from robotV1, _ robotV2) error { from.Name, from.Labels["a"] = "two", "c"; return nil }), want: ""},
		"nil error":          {hook: with(func(robotV1, robotV2) error { return (*field.Error)(nil) }), want: prefix + "a nil *field.Error was returned"},
		"unknown version":    {to: "example.com/v9", want: "convert Robot shop/one from example.com/v1 to example.com/v9: the program does not convert example.com/v9: it has v2, v1, v3"},
		"unknown source":     {objects: []string{robotJSON("v9", "{}")}, want: "convert Robot shop/one from example.com/v9 to example.com/v2: the program does not convert example.com/v9"},
		"other group":        {to: "other.com/v2", want: "other.com/v2 is not a version of the group example.com"},
		"no version":         {to: "-", want: "is not a version of the group example.com"},
		"core group":         {to: "v2", want: "v2 is not a version of the group example.com"},
		"other kind":         {objects: []string{strings.Replace(good, "Robot", "Machine", 1)}, want: `the kind is "Machine": want Robot`},
		"wrong metadata":     {objects: []string{`{"apiVersion":"example.com/v1","kind":"Robot","metadata":{"name":1}}`}, want: "cannot unmarshal number"},
		"no object":          {objects: []string{"null"}, want: `convert an object to example.com/v2: invalid JSON at byte 0: want {, got "null"`},
		"list":               {objects: []string{"[]"}, want: "convert an object to example.com/v2: invalid JSON at byte 0: want {"},
		"unstructured":       {hook: ConvertingUnstructured(robotsCRD, func(*unstructured.Unstructured, string) error { return errors.New("spec.size: no") }), want: prefix + "spec.size: no"},
		"unstructured kind":  {hook: ConvertingUnstructured(robotsCRD, func(obj *unstructured.Unstructured, _ string) error { obj.SetKind("X"); return nil }), want: prefix + `kind was changed to "X"`},
		"unstructured name":  {hook: ConvertingUnstructured(robotsCRD, func(obj *unstructured.Unstructured, _ string) error { obj.SetName("X"); return nil }), want: prefix + "metadata.name was changed"},
		"unstructured field": {hook: ConvertingUnstructured(robotsCRD, func(obj *unstructured.Unstructured, _ string) error { obj.SetSelfLink("X"); return nil }), want: prefix + "metadata.selfLink was changed"},
		"unstructured gone":  {hook: ConvertingUnstructured(robotsCRD, func(obj *unstructured.Unstructured, _ string) error { obj.Object = nil; return nil }), want: prefix + "the converter removed the object"},
		"unstructured panic": {hook: ConvertingUnstructured(robotsCRD, func(*unstructured.Unstructured, string) error { panic("oops") }), want: prefix + "conversion of robots.example.com panicked: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := test.hook
			if hook.protocol == nil {
				hook = robotHook()
			}
			objects := test.objects
			if objects == nil {
				objects = []string{good}
			}
			to := test.to
			switch to {
			case "":
				to = "example.com/v2"
			case "-":
				to = ""
			}
			_, failure := convert(t, serveRobots(t, nil, hook), to, objects...)
			if (failure == "") != (test.want == "") || !strings.Contains(failure, test.want) {
				t.Errorf("the failure is %q, want %q", failure, test.want)
			}
		})
	}
}

// The log record of a failed conversion has the key of the object, which blocks the lists of its kind.
func TestFailedConversionIsLoggedWithItsObject(t *testing.T) {
	t.Parallel()
	log := &testlog.Buffer{}
	s := serveRobots(t, slog.New(slog.NewTextHandler(log, nil)), robotHook())
	good, bad := robotJSON("v1", `{"size":"1x2"}`), strings.Replace(robotJSON("v1", `{"size":[]}`), `"one"`, `"two"`, 1)
	if _, failure := convert(t, s, "example.com/v2", good, bad, good); !strings.Contains(failure, "convert Robot shop/two from example.com/v1") {
		t.Error(failure)
	}
	if !strings.Contains(log.String(), "kind=Robot namespace=shop name=two error=") {
		t.Error(log)
	}
}

func TestUnstructuredConversions(t *testing.T) {
	t.Parallel()
	s := serveRobots(t, nil, ConvertingUnstructured(robotsCRD, func(obj *unstructured.Unstructured, version string) error {
		from := obj.GroupVersionKind().Version
		obj.SetLabels(map[string]string{"from": from, "to": version})
		return unstructured.SetNestedField(obj.Object, int64(1<<60+1), "spec", "large")
	}))
	converted, failure := convert(t, s, "example.com/v8", robotJSON("v7", `{"size":9007199254740993}`))
	want := strings.Replace(robotJSON("v8", `{"size":9007199254740993,"large":1152921504606846977}`), `{"a":"b"}`, `{"from":"v7","to":"v8"}`, 1)
	if failure != "" || !sameJSON(converted[0], want) || !strings.Contains(converted[0], "9007199254740993") || !strings.Contains(converted[0], "1152921504606846977") {
		t.Errorf("%s%s, want %s", failure, converted, want)
	}
}

// A field that the Go type lacks is logged once, without the index of its item.
func TestUnknownFieldsAreLogged(t *testing.T) {
	t.Parallel()
	var log testlog.Buffer
	s := serveRobots(t, slog.New(slog.NewTextHandler(&log, nil)), robotHook())
	for i := range 3 {
		arms := strings.Repeat(`{"Joints":1},`, i)
		if _, failure := convert(t, s, "example.com/v1", robotJSON("v2", `{"arms":[`+arms+`{"Joints":1,"color":"red"}]}`)); failure != "" {
			t.Error(failure)
		}
	}
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], `field not converted`) || !strings.Contains(lines[0], `spec.arms[].color`) {
		t.Error(log.String())
	}
}

// bare has metadata of another type than metav1.ObjectMeta.
type bare struct {
	metav1.TypeMeta
	metav1.Object
}

func (b *bare) DeepCopyObject() runtime.Object { return b }

func TestNewReportsMistakesOfConversions(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, addRobots)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Cluster: cluster, Hooks: []Hook{
		Converting[robotV2](robotsCRD),
		Converting("robots", Spoke(v1ToV2, v2ToV1)),
		Converting("a.example.com", Spoke(v1ToV2, v2ToV1), Spoke(v1ToV2, v2ToV1)),
		Converting("b.example.com", Spoke(v1ToV2, nil), Version[robotV2]{}),
		Converting("c.example.com", Spoke(func(robotV2, robotV2) error { return nil }, func(robotV2, robotV2) error { return nil })),
		Converting("d.example.com", Spoke(func(*robot[int], robotV2) error { return nil }, func(robotV2, *robot[int]) error { return nil })),
		Converting("e.example.com", Spoke(func(*robot[string], robotV2) error { return nil }, func(robotV2, *robot[string]) error { return nil })),
		Converting("f.example.com", Spoke(func(*robot[bool], robotV2) error { return nil }, func(robotV2, *robot[bool]) error { return nil })),
		Converting("g.example.com", Spoke(func(*unstructured.Unstructured, robotV2) error { return nil }, func(robotV2, *unstructured.Unstructured) error { return nil })),
		ConvertingUnstructured("h.example.com", nil),
		robotHook(),
		Converting("i.example.com", Spoke(func(*bare, robotV2) error { return nil }, func(robotV2, *bare) error { return nil })),
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`Hooks[0] "robots.example.com": only one version`, `Hooks[1] "robots": the name must be that of a CustomResourceDefinition`,
		`Hooks[2] "a.example.com": *apitest.Object[`, "is version v1, which another Go type has", `Hooks[3] "b.example.com": version 0 lacks a function`,
		`Hooks[3] "b.example.com": version 1 lacks a function`, `Hooks[4] "c.example.com": *apitest.Object[`, "is version v2, which another Go type has",
		`is of the group "other.com": the group of the CustomResourceDefinition is "example.com"`, "is a Machine, and the hub is a Robot",
		`Hooks[7] "f.example.com": find the kind of *apitest.Object[bool]`, `Hooks[8] "g.example.com": a Go type is unstructured`,
		`Hooks[9] "h.example.com": the function is nil`, `Hooks[10] "robots.example.com": another hook has the same name`,
		`Hooks[11] "i.example.com": *webhook.bare does not embed metav1.ObjectMeta`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

// The time of the request ends a review between two objects.
func TestConversionsAreBoundedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := serveRobots(t, nil, Converting(robotsCRD, Spoke(func(robotV1, robotV2) error { calls++; time.Sleep(10 * time.Second); return nil }, v2ToV1)))
		var objects []string
		for range 5 {
			objects = append(objects, robotJSON("v1", "{}"))
		}
		_, failure := convert(t, s, "example.com/v2", objects...)
		if calls != 3 || failure != "request.objects[3]: convert Robot shop/one from example.com/v1 to example.com/v2: the webhook did not respond within 27s" {
			t.Error(calls, failure)
		}
	})
}

// Conversion reviews may be larger than admission reviews, but only one at a time.
func TestLargeConversions(t *testing.T) {
	t.Parallel()
	s := serveRobots(t, nil, robotHook(), Validating(mapsOptions(), allowMaps))
	object := robotJSON("v1", `{"size":"1x`+strings.Repeat("2", 1<<20)+`"}`)
	objects := make([]string, 10)
	for i := range objects {
		objects[i] = object
	}
	converted, failure := convert(t, s, "example.com/v2", objects...)
	if failure != "" || len(converted) != 10 || !strings.Contains(converted[9], `"length":"1"`) {
		t.Error(failure)
	}
	synctest.Test(t, func(t *testing.T) {
		s := serveRobots(t, nil, robotHook())
		s.large <- struct{}{}
		defer func() { <-s.large }()
		if code, text := post(t, s, "/"+robotsCRD, make([]byte, maxBodyBytes+1)); code != http.StatusServiceUnavailable {
			t.Error(code, string(text))
		}
		if _, failure := convert(t, s, "example.com/v2", object); failure != "" {
			t.Error(failure)
		}
	})
	if code, _ := post(t, s, "/"+hookName, make([]byte, maxBodyBytes+1)); code != http.StatusRequestEntityTooLarge {
		t.Error(code)
	}
	if len(s.slots) > 0 || len(s.large) > 0 {
		t.Error("slots are not free")
	}
}

func TestInvalidConversionReviews(t *testing.T) {
	t.Parallel()
	s := serveRobots(t, nil, robotHook())
	for name, body := range map[string]string{
		"empty":   "",
		"v1beta1": `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{"uid":"1"}}`,
		"kind":    `{"apiVersion":"apiextensions.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1"}}`,
		"request": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
		"uid":     `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"desiredAPIVersion":"example.com/v1"}}`,
		"null":    `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1"},"request":null}`,
	} {
		if code, text := post(t, s, "/"+robotsCRD, []byte(body)); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

// An invalid review of any size needs no more memory than a valid one: its error is short, and so is the log record.
func TestErrorsOfConversionReviewsAreShort(t *testing.T) {
	t.Parallel()
	many := func(field string) string { return strings.Repeat(field+",", 100_000) }
	const head = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",`
	const request = head + `"request":{"uid":"1","desiredAPIVersion":"example.com/v2`
	for name, body := range map[string]string{
		"kinds":           head + many(`"kind":1`) + `"request":{"uid":"1"}}`,
		"requests":        head + many(`"request":1`) + `"request":{"uid":"1"}}`,
		"uids":            head + `"request":{` + many(`"uid":1`) + `"uid":"1"}}`,
		"objects":         head + `"request":{"uid":"1",` + many(`"objects":1`) + `"objects":[]}}`,
		"kinds of object": request + `","objects":[{` + many(`"kind":1`) + `"kind":"Robot"}]}}`,
		"desired version": request + many("x") + `","objects":[{"apiVersion":"example.com/v1"}]}}`,
		"object version":  request + `","objects":[{"apiVersion":"example.com/v1` + many("x") + `","kind":"Robot"}]}}`,
	} {
		text := &testlog.Buffer{}
		s := serveRobots(t, slog.New(slog.NewTextHandler(text, nil)), robotHook())
		if _, err := readConversion([]byte(body)); len(fmt.Sprint(err)) > 200 {
			t.Errorf("%s: the error has %d bytes: %.200s", name, len(err.Error()), err)
		}
		if code, response := post(t, s, "/"+robotsCRD, []byte(body)); text.Len() > 5000 || len(response) > 5000 || code == http.StatusOK && !bytes.Contains(response, []byte(metav1.StatusFailure)) {
			t.Errorf("%s: %d, a response of %d bytes, a log of %d bytes", name, code, len(response), text.Len())
		}
	}
}

// A body never makes the server panic. Each successful response has as many objects as the request, in the desired version
// and with the name that they had.
func FuzzConversionReview(f *testing.F) {
	s := serveRobots(f, nil, robotHook())
	review := func(desired string, objects ...string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":%q,"objects":[%s]}}`,
			desired, strings.Join(objects, ","))
	}
	f.Add(review("example.com/v2", robotJSON("v1", `{"size":"1x2"}`), robotJSON("v3", `{"body":{"arms":[{"Joints":1}]}}`)))
	f.Add(review("example.com/v1", robotJSON("v2", `{"limit":1,"names":["a"]}`), "null"))
	f.Add(review("", `{}`))
	f.Add([]byte(`{"kind":"ConversionReview","request":{"uid":"1","objects":[{}]},"apiVersion":"apiextensions.k8s.io/v1","request":{"objects":null,"uid":"\u0032"}, "x": 1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		decoded := &apiextensionsv1.ConversionReview{}
		if decodeReview(body, decoded, conversionReviewKind()) == nil {
			read, err := readConversion(body)
			if decoded.Request == nil || decoded.Request.UID == "" {
				if err == nil {
					t.Fatalf("%s is read as %+v, but has no request", body, read)
				}
				return
			}
			var objects [][]byte
			if read.objects != nil {
				_ = wire.EachItem(read.objects, func(object []byte) bool { objects = append(objects, object); return true })
			}
			same := slices.EqualFunc(objects, decoded.Request.Objects, func(a []byte, b runtime.RawExtension) bool {
				return bytes.Equal(a, b.Raw) || b.Raw == nil && string(a) == "null"
			})
			if err != nil || read.uid != decoded.Request.UID || read.desired != decoded.Request.DesiredAPIVersion || !same {
				t.Fatalf("%s is read as %+v (%v), want %+v", body, read, err, decoded.Request)
			}
		}
		code, text := post(t, s, "/"+robotsCRD, body)
		if bytes.Contains(text, []byte("panicked")) {
			t.Fatal(string(text))
		}
		if code != http.StatusOK {
			return
		}
		sent, answer := &apiextensionsv1.ConversionReview{}, &apiextensionsv1.ConversionReview{}
		if json.Unmarshal(body, sent) != nil || sent.Request == nil || json.Unmarshal(text, answer) != nil || answer.Response.Result.Status != metav1.StatusSuccess {
			return
		}
		if len(answer.Response.ConvertedObjects) != len(sent.Request.Objects) {
			t.Fatalf("%s has another number of objects than %s", text, body)
		}
		for i, object := range answer.Response.ConvertedObjects {
			var before, after metav1.PartialObjectMetadata
			if err := json.Unmarshal(object.Raw, &after); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(sent.Request.Objects[i].Raw, &before); err != nil {
				t.Fatal(err)
			}
			if after.APIVersion != sent.Request.DesiredAPIVersion || before.Name != after.Name || before.Kind != after.Kind {
				t.Fatalf("%s became %s", sent.Request.Objects[i].Raw, object.Raw)
			}
		}
	})
}

// The cost of a review of 100 objects.
func BenchmarkConversionReview(b *testing.B) {
	s := serveRobots(b, nil, robotHook())
	objects := make([]string, 100)
	for i := range objects {
		objects[i] = robotJSON("v1", `{"size":"1x2"}`)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, failure := convert(b, s, "example.com/v2", objects...); failure != "" {
			b.Fatal(failure)
		}
	}
}
