package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

func connect(tb testing.TB) *kube.Cluster {
	tb.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		tb.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	return cluster
}

const hookName = "test.example.com"

// mapsOptions are the options of a hook for ConfigMaps.
func mapsOptions() HookConfig {
	return HookConfig{Name: hookName, Operations: []admissionv1.Operation{admissionv1.Create}, Resources: []schema.GroupVersionResource{{Resource: "configmaps"}}}
}

func serve(tb testing.TB, hooks ...Hook) *Server {
	tb.Helper()
	s, err := New(Config{Cluster: connect(tb), Hooks: hooks})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// mapReview returns a review of the creation of a ConfigMap.
func mapReview(object string) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Operation: admissionv1.Create,
			Name: "settings", Namespace: "default", Object: runtime.RawExtension{Raw: []byte(object)},
		},
	}
}

const mapObject = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"default"},"data":{"a":"1"},"later":true}`

// ask sends a review, and returns the HTTP status, and the response or the text of an error.
func ask(tb testing.TB, s http.Handler, review any) (int, *admissionv1.AdmissionResponse, string) {
	tb.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		tb.Fatal(err)
	}
	return send(tb, s, body)
}

func send(tb testing.TB, s http.Handler, body []byte) (int, *admissionv1.AdmissionResponse, string) {
	tb.Helper()
	req := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/"+hookName+"?timeout=10s", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		return w.Code, nil, strings.TrimSpace(w.Body.String())
	}
	answer := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
		tb.Fatal(err)
	}
	if answer.GroupVersionKind() != reviewKind() || answer.Response == nil || answer.Request != nil {
		tb.Fatalf("the response is %s", w.Body)
	}
	return w.Code, answer.Response, ""
}

// Each kind of error of a Validator, with the response that the API server gets. code 500 is no decision.
func TestResultsOfValidators(t *testing.T) {
	t.Parallel()
	path := field.NewPath("data").Key("a")
	invalid := field.Invalid(path, "1", "must be even")
	for name, test := range map[string]struct {
		err     error
		panics  any
		code    int32 // 0: allowed
		reason  metav1.StatusReason
		message string
		causes  int
	}{
		"nil":         {},
		"plain error": {err: errors.New("host is used"), code: 403, reason: metav1.StatusReasonForbidden, message: "host is used"},
		"field error": {
			err: invalid, code: 422, reason: metav1.StatusReasonInvalid, causes: 1,
			message: `ConfigMap "settings" is invalid: data[a]: Invalid value: "1": must be even`,
		},
		"field errors": {
			err: field.ErrorList{invalid, field.Required(path.Child("b"), "")}.ToAggregate(), code: 422, reason: metav1.StatusReasonInvalid, causes: 2,
			message: `ConfigMap "settings" is invalid: [data[a]: Invalid value: "1": must be even, data[a].b: Required value]`,
		},
		"wrapped field error": {
			err: fmt.Errorf("check: %w", invalid), code: 422, reason: metav1.StatusReasonInvalid, causes: 1,
			message: `ConfigMap "settings" is invalid: data[a]: Invalid value: "1": must be even`,
		},
		"joined field errors": {
			err: errors.Join(invalid, field.Required(path.Child("b"), "")), code: 422, reason: metav1.StatusReasonInvalid, causes: 2,
			message: `ConfigMap "settings" is invalid: [data[a]: Invalid value: "1": must be even, data[a].b: Required value]`,
		},
		"field error joined with another": {
			err: errors.Join(invalid, errors.New("x")), code: 403, reason: metav1.StatusReasonForbidden,
			message: "data[a]: Invalid value: \"1\": must be even\nx",
		},
		"status error": {
			err: apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("again")), code: 409, reason: metav1.StatusReasonConflict,
			message: `Operation cannot be fulfilled on configmaps "settings": again`,
		},
		"status error without a code": {err: &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Message: "odd"}}, code: 403, message: "odd"},
		"status error of success":     {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 200, Message: "odd"}}, code: 403, message: "odd"},
		"status error with 1000":      {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 1000, Message: "odd"}}, code: 403, message: "odd"},
		"failure":                     {err: Failure(errors.New("list: refused")), code: 500, message: "list: refused"},
		"wrapped failure":             {err: fmt.Errorf("check: %w", Failure(errors.New("refused"))), code: 500, message: "check: refused"},
		"failure with a field error":  {err: Failure(invalid), code: 500, message: invalid.Error()},
		"panic":                       {panics: "oops", code: 500, message: "webhook test.example.com panicked: oops"},
		"panic with an error":         {panics: invalid, code: 500, message: "webhook test.example.com panicked: " + invalid.Error()},
		"typed nil status":            {err: (*apierrors.StatusError)(nil), code: 403, reason: metav1.StatusReasonForbidden, message: "a nil *errors.StatusError was returned as an error: return nil instead"},
		"typed nil error":             {err: (*field.Error)(nil), code: 403, reason: metav1.StatusReasonForbidden, message: "a nil *field.Error was returned as an error: return nil instead"},
	} {
		f := func(context.Context, *Request[*corev1.ConfigMap]) error {
			if test.panics != nil {
				panic(test.panics)
			}
			return test.err
		}
		for kind, hook := range map[string]Hook{"validating": Validating(mapsOptions(), f), "mutating": Mutating(mapsOptions(), f)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				status, response, text := ask(t, serve(t, hook), mapReview(mapObject))
				switch {
				case test.code == 500:
					if status != 500 || text != test.message {
						t.Errorf("status %d %q, want 500 %q", status, text, test.message)
					}
				case test.code == 0:
					if response == nil || !response.Allowed || response.UID != "1" || response.Patch != nil || response.PatchType != nil {
						t.Errorf("status %d %s: %+v", status, text, response)
					}
				case response == nil || response.Allowed || response.UID != "1" || response.Patch != nil:
					t.Errorf("status %d %s: %+v", status, text, response)
				default:
					r := response.Result
					causes := 0
					if r.Details != nil {
						causes = len(r.Details.Causes)
					}
					if r.Code != test.code || r.Reason != test.reason || r.Message != test.message || causes != test.causes || r.Status != metav1.StatusFailure {
						t.Errorf("the result is %+v", r)
					}
				}
			})
		}
	}
}

func TestChains(t *testing.T) {
	t.Parallel()
	var calls []string
	add := func(key string, err error) func(context.Context, *Request[*corev1.ConfigMap]) error {
		return func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			calls = append(calls, fmt.Sprint(key, len(r.Object.Data)))
			r.Object.Data[key] = "new"
			r.Warn("%s was added", key)
			return err
		}
	}
	_, response, text := ask(t, serve(t, Mutating(mapsOptions(), add("b", nil), add("c", nil))), mapReview(mapObject))
	if response == nil || fmt.Sprint(calls) != "[b1 c2]" || fmt.Sprint(response.Warnings) != "[b was added c was added]" {
		t.Errorf("%s, calls %v, response %+v", text, calls, response)
	}
	if got, want := string(response.Patch), `[{"op":"add","path":"/data/b","value":"new"},{"op":"add","path":"/data/c","value":"new"}]`; got != want {
		t.Errorf("the patch is %s, want %s", got, want)
	}

	calls = nil
	_, response, text = ask(t, serve(t, Mutating(mapsOptions(), add("b", errors.New("no")), add("c", nil))), mapReview(mapObject))
	if response == nil || fmt.Sprint(calls) != "[b1]" || response.Allowed || response.Patch != nil || fmt.Sprint(response.Warnings) != "[b was added]" {
		t.Errorf("%s, calls %v, response %+v", text, calls, response)
	}
}

// A mutator may replace the object, remove everything in it, or get no object at all.
func TestMutatorsOfWholeObjects(t *testing.T) {
	t.Parallel()
	deletion := mapReview(mapObject)
	deletion.Request.Operation, deletion.Request.Object, deletion.Request.OldObject = admissionv1.Delete, deletion.Request.OldObject, deletion.Request.Object
	for name, test := range map[string]struct {
		review *admissionv1.AdmissionReview
		mutate Func[*corev1.ConfigMap]
		want   string // the patch
		code   int
	}{
		"replaced": {mapReview(mapObject), func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			r.Object = r.Object.DeepCopy()
			r.Object.Data = nil
			return nil
		}, `[{"op":"remove","path":"/data"}]`, 200},
		"removed": {mapReview(mapObject), func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			r.Object = nil
			return nil
		}, "", 500},
		"delete": {deletion, func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			if r.Object != nil || r.Old.Data["a"] != "1" {
				return errors.New("wrong objects")
			}
			return nil
		}, "", 200},
		"object of a delete": {deletion, func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			r.Object = r.Old
			return nil
		}, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, response, text := ask(t, serve(t, Mutating(mapsOptions(), test.mutate)), test.review)
			if status != test.code || (status == 200 && (!response.Allowed || string(response.Patch) != test.want)) {
				t.Errorf("status %d %s: %+v", status, text, response)
			}
		})
	}
}

// A mutator may change what the API server sent: the response is for the request that it sent.
func TestMutatorsOfRequests(t *testing.T) {
	t.Parallel()
	_, response, text := ask(t, serve(t, Mutating(mapsOptions(), func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
		r.Object.Data["b"] = "2"
		r.Admission.UID, r.Admission.Object.Raw = "2", []byte(`{}`)
		return nil
	})), mapReview(mapObject))
	if response == nil || response.UID != "1" || string(response.Patch) != `[{"op":"add","path":"/data/b","value":"2"}]` {
		t.Errorf("%s: %+v", text, response)
	}
}

// sharing has a DeepCopyObject that somebody wrote by hand, and that shares maps with the object.
type sharing struct{ corev1.ConfigMap }

func (s *sharing) DeepCopyObject() runtime.Object { return &sharing{s.ConfigMap} }

func TestPatchDoesNotDependOnDeepCopy(t *testing.T) {
	t.Parallel()
	chain := []Func[*sharing]{func(_ context.Context, r *Request[*sharing]) error {
		r.Object.Data["b"] = "2"
		return nil
	}}
	response, err := review(t.Context(), mapReview(mapObject).Request, chain, true)
	if err != nil || string(response.Patch) != `[{"op":"add","path":"/data/b","value":"2"}]` {
		t.Errorf("%+v (%v)", response, err)
	}
}

func TestUnstructuredObjects(t *testing.T) {
	t.Parallel()
	options := mapsOptions()
	options.Resources[0].Group, options.Resources[0].Version = "*", "*"
	hook := Mutating(options, func(_ context.Context, r *Request[*unstructured.Unstructured]) error {
		return unstructured.SetNestedField(r.Object.Object, int64(1<<60+1), "later")
	})
	_, response, text := ask(t, serve(t, hook), mapReview(mapObject))
	if response == nil || string(response.Patch) != `[{"op":"replace","path":"/later","value":1152921504606846977}]` {
		t.Errorf("%s: %+v", text, response)
	}
}

// The functions have nine tenths of the time that the API server waits.
func TestTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		began := time.Now()
		s := serve(t, Validating(mapsOptions(), func(ctx context.Context, _ *Request[*corev1.ConfigMap]) error {
			<-ctx.Done()
			took = time.Since(began)
			return ctx.Err()
		}))
		status, _, text := ask(t, s, mapReview(mapObject))
		if status != 500 || took != 9*time.Second || !strings.HasPrefix(text, "the webhook did not respond within 9s: ") {
			t.Errorf("status %d after %s: %s", status, took, text)
		}
	})
}

// Reviews that wait for a slot end in time, and their bodies are not read before.
func TestReviewsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		running, most := 0, 0
		var mu sync.Mutex
		s := serve(t, Validating(mapsOptions(), func(context.Context, *Request[*corev1.ConfigMap]) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-release
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}))
		var reviews sync.WaitGroup
		codes := make(chan int, 2*maxReviews)
		for range 2 * maxReviews {
			reviews.Go(func() { // waited for below
				code, _, _ := ask(t, s, mapReview(mapObject))
				codes <- code
			})
		}
		time.Sleep(time.Minute)
		close(release)
		reviews.Wait()
		close(codes)
		counts := map[int]int{}
		for code := range codes {
			counts[code]++
		}
		if most != maxReviews || counts[200] != maxReviews || counts[503] != maxReviews {
			t.Errorf("%d reviews at once, status codes %v", most, counts)
		}
	})
}

// Requests that are not valid reviews never reach a Validator.
func TestInvalidReviews(t *testing.T) {
	t.Parallel()
	called := 0
	s := serve(t, Validating(mapsOptions(), func(context.Context, *Request[*corev1.ConfigMap]) error { called++; return nil }))
	valid, err := json.Marshal(mapReview(mapObject))
	if err != nil {
		t.Fatal(err)
	}
	edited := func(old, replacement string) string { return strings.Replace(string(valid), old, replacement, 1) }
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
	}{
		"GET":                  {method: http.MethodGet, code: 405},
		"other path":           {path: "/other.example.com", code: 404},
		"path below":           {path: "/" + hookName + "/x", code: 404},
		"root":                 {path: "/", code: 404},
		"no content type":      {contentType: "-", code: 415},
		"YAML":                 {contentType: "application/yaml", code: 415},
		"invalid content type": {contentType: ";;", code: 415},
		"time-out":             {path: "/" + hookName + "?timeout=soon", code: 400},
		"negative time-out":    {path: "/" + hookName + "?timeout=-1s", code: 400},
		"empty body":           {body: "-", code: 400},
		"no JSON":              {body: "x", code: 400},
		"list":                 {body: "[]", code: 400},
		"null":                 {body: "null", code: 400},
		"v1beta1":              {body: edited("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), code: 400},
		"no request":           {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: 400},
		"no uid":               {body: edited(`"uid":"1"`, `"uid":""`), code: 400},
		"uid in capitals":      {body: edited(`"uid":"1"`, `"UID":"1"`), code: 400},
		"other kind":           {body: edited(`"kind":"ConfigMap"`, `"kind":"Secret"`), code: 500},
		"object of two types":  {body: edited(`"data":{"a":"1"}`, `"data":[]`), code: 500},
		"too large":            {body: edited(`"a":"1"`, `"a":"`+strings.Repeat("x", maxBodyBytes)+`"`), code: 413},
	} {
		path := test.path
		if path == "" {
			path = "/" + hookName
		}
		method := test.method
		if method == "" {
			method = http.MethodPost
		}
		body := test.body
		switch body {
		case "":
			body = string(valid)
		case "-":
			body = ""
		}
		req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		switch test.contentType {
		case "":
			req.Header.Set("Content-Type", "application/json; charset=utf-8")
		case "-":
		default:
			req.Header.Set("Content-Type", test.contentType)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		if w.Code != test.code || strings.TrimSpace(w.Body.String()) == "" {
			t.Errorf("%s: status %d %q, want %d", name, w.Code, w.Body, test.code)
		}
	}
	if called != 0 {
		t.Errorf("the validator was called %d times", called)
	}
	if code, response, text := send(t, s, valid); code != 200 || !response.Allowed || called != 1 {
		t.Errorf("the valid review has status %d: %s", code, text)
	}
}

// New reports all mistakes at once.
func TestNewReportsMistakes(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, *Request[*corev1.ConfigMap]) error { return nil }
	with := func(change func(*HookConfig)) Hook {
		options := mapsOptions()
		change(&options)
		return Validating(options, ok)
	}
	_, err := New(Config{Cluster: connect(t), Listen: ":9443", Hooks: []Hook{
		{},
		Validating[*corev1.ConfigMap](mapsOptions()),
		Validating(mapsOptions(), ok, nil),
		with(func(o *HookConfig) { o.Name = "short" }),
		with(func(o *HookConfig) { o.Name = "/a.b.c" }),
		Validating(HookConfig{Name: hookName}, allow[*unstructured.Unstructured]),
		with(func(o *HookConfig) { o.Operations[0] = "create" }),
		with(func(o *HookConfig) { o.Timeout = 1500 * time.Millisecond }),
		with(func(o *HookConfig) { o.Timeout = 31 * time.Second }),
		with(func(o *HookConfig) { o.Reinvoke = true }),
		Validating(mapsOptions(), func(context.Context, *Request[*unstructured.Unstructured]) error { return nil }),
		Validating(mapsOptions(), func(context.Context, *Request[*unregistered]) error { return nil }),
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Hooks[0] is empty", `Hooks[1] "test.example.com": no function`, "Hooks[2] \"test.example.com\": function 1 is nil",
		`Hooks[3] "short": Name`, `Hooks[4] "/a.b.c": Name`, "Hooks[5] \"test.example.com\": Resources is empty",
		"Hooks[6] \"test.example.com\": Operations[0] is \"create\"", "Hooks[7] \"test.example.com\": Timeout is 1.5s", "Hooks[8] \"test.example.com\": Timeout is 31s",
		"Hooks[9] \"test.example.com\": Reinvoke", "Hooks[10] \"test.example.com\": Resources[0] lacks a Version",
		"Hooks[11] \"test.example.com\": ", "unregistered", "another hook has the same name", "CertFile and KeyFile, or Certificates, are required",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	for name, config := range map[string]Config{
		"no cluster":               {Hooks: []Hook{Validating(mapsOptions(), ok)}},
		"no hooks":                 {Cluster: connect(t)},
		"certificate, no address":  {Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), ok)}, CertFile: "tls.crt"},
		"certificate that is lost": {Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), ok)}, Listen: "127.0.0.1:0", CertFile: "missing.crt", KeyFile: "missing.key"},
	} {
		if _, err := New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s := serve(t, Validating(mapsOptions(), ok))
	if err := s.Run(t.Context()); err == nil || s.Ready() == nil {
		t.Error("a server without an address runs")
	}
}

// unregistered is a Go type that the cluster does not know.
type unregistered struct{ corev1.ConfigMap }

func (u *unregistered) DeepCopyObject() runtime.Object { return &unregistered{*u.DeepCopy()} }

// A body never makes the server panic, and only the validator's decision allows a request.
func FuzzReview(f *testing.F) {
	valid, err := json.Marshal(mapReview(mapObject))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"ConfigMap"},"object":null,"oldObject":{"data":{"a":"2"}}}}`))
	allowed, panicked := false, false
	s, err := New(Config{Cluster: connect(f), Hooks: []Hook{
		Mutating(mapsOptions(), func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			defer func() { panicked = recover() != nil }()
			if r.Object == nil || r.Object.Data["a"] != "1" {
				return errors.New("not allowed")
			}
			r.Object.Data["b"] = "2"
			allowed = true
			return nil
		}),
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		allowed = false
		_, response, text := send(t, s, body)
		if response != nil && response.Allowed != allowed {
			t.Errorf("allowed: %t, want %t", response.Allowed, allowed)
		}
		if panicked || strings.Contains(text, "panicked") {
			t.Error(text)
		}
	})
}

func allowMaps(context.Context, *Request[*corev1.ConfigMap]) error { return nil }

// Middleware sees each review, and its context is that of the functions.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	type key struct{}
	seen := 0
	hook := Validating(mapsOptions(), func(ctx context.Context, _ *Request[*corev1.ConfigMap]) error {
		return fmt.Errorf("from %v, at most %t", ctx.Value(key{}), hasDeadline(ctx))
	})
	config := Config{Cluster: connect(t), Hooks: []Hook{hook}, Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			seen++
			req = req.WithContext(context.WithValue(req.Context(), key{}, req.URL.Path))
			next.ServeHTTP(w, req)
			if req.Pattern != "POST /"+hookName { // it names spans
				t.Errorf("the pattern is %q", req.Pattern)
			}
		})
	}}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	_, response, text := ask(t, s, mapReview(mapObject))
	if want := "from /" + hookName + ", at most true"; response == nil || response.Result == nil || response.Result.Message != want {
		t.Errorf("the response is %+v, %s", response, text)
	}
	if seen != 1 {
		t.Errorf("the middleware was called %d times", seen)
	}
	config.Middleware = func(http.Handler) http.Handler { return nil }
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "Middleware returned nil") {
		t.Errorf("without a handler: %v", err)
	}
}

// A middleware that fails never makes a review allowed, and keeps no slot.
func TestMiddlewareThatFails(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(mapReview(mapObject))
	if err != nil {
		t.Fatal(err)
	}
	for name, fail := range map[string]func(next http.Handler, w http.ResponseWriter, req *http.Request){
		"no call":      func(http.Handler, http.ResponseWriter, *http.Request) {},
		"panic before": func(http.Handler, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"panic after": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			next.ServeHTTP(w, req)
			panic(http.ErrAbortHandler)
		},
		"two calls": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			next.ServeHTTP(w, req)
			next.ServeHTTP(w, req)
		},
		"other body": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			req.Body = http.NoBody
			next.ServeHTTP(w, req)
		},
		"other path": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			req.URL.Path = "/other"
			next.ServeHTTP(w, req)
		},
		"cancelled context": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			next.ServeHTTP(w, req.WithContext(ctx))
		},
		"own ResponseWriter": func(next http.Handler, w http.ResponseWriter, req *http.Request) {
			next.ServeHTTP(struct{ http.ResponseWriter }{w}, req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing := true
			s, err := New(Config{
				Cluster: connect(t),
				Hooks:   []Hook{Validating(mapsOptions(), func(context.Context, *Request[*corev1.ConfigMap]) error { return errors.New("denied") })},
				Middleware: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
						if failing {
							fail(next, w, req)
						} else {
							next.ServeHTTP(w, req)
						}
					})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 * maxReviews {
				w := httptest.NewRecorder()
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+hookName+"?timeout=10s", bytes.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				func() {
					defer func() { _ = recover() }() // as net/http does
					s.ServeHTTP(w, req)
				}()
				if strings.Contains(w.Body.String(), `"allowed":true`) {
					t.Fatalf("the review is allowed: %s", w.Body)
				}
			}
			failing = false
			if _, response, text := ask(t, s, mapReview(mapObject)); response == nil || response.Allowed || response.Result.Message != "denied" {
				t.Errorf("afterwards: %+v, %s", response, text)
			}
		})
	}
}

func hasDeadline(ctx context.Context) bool {
	_, ok := ctx.Deadline()
	return ok
}
