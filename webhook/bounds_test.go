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
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/testlog"
)

// allocated returns how many bytes f allocates. No other test may run at the same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func conversionReview(objects string) []byte {
	return []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"example.com/v2","objects":[` + objects + `]}}`)
}

// A conversion review needs little more memory than its body, whatever its objects are: the server converts one object at
// a time, stops at the first error, and does not decode an object that would need too much.
func TestConversionsNeedBoundedMemory(t *testing.T) { //nolint:paralleltest // it counts allocations
	const size = 12 << 20
	maps := robotJSON("v1", `{"size":[{"a":{}}`+strings.Repeat(`,{"a":{}}`, 600_000)+`]}`)
	for name, body := range map[string][]byte{
		"numbers":        conversionReview("0" + strings.Repeat(",0", size/2)),
		"empty objects":  conversionReview("{}" + strings.Repeat(",{}", size/3)),
		"first is wrong": conversionReview("0," + robotJSON("v2", `{"length":"`+strings.Repeat("x", size)+`"}`)),
		"empty lists":    conversionReview(robotJSON("v1", `{"size":[[]`+strings.Repeat(",[]", size/3)+`]}`)),
		"unknown fields": conversionReview(robotJSON("v1", `{"size":1`+numbered(200_000, `,"x%d":1`)+`}`)),
		"large object":   conversionReview(robotJSON("v1", `{"size":"`+strings.Repeat("x", size)+`"}`)),
		"unstructured":   conversionReview(maps),
	} {
		hook := robotHook()
		if name == "unstructured" {
			hook = ConvertingUnstructured(robotsCRD, func(*unstructured.Unstructured, string) error { return nil })
		}
		s := serveRobots(t, nil, hook)
		var code int
		var text []byte
		grown := allocated(func() { code, text = post(t, s, "/"+robotsCRD, body) })
		if code != http.StatusOK || !bytes.Contains(text, []byte(metav1.StatusFailure)) {
			t.Errorf("%s: status %d, %.200s", name, code, text)
		}
		// The begin of the body is read into smaller buffers. With the race detector Grow allocates twice the size.
		buffer := allocated(func() { new(bytes.Buffer).Grow(len(body)) })
		if limit := 2*buffer + 2<<20; grown > limit {
			t.Errorf("%s: a review of %d KiB allocates %d KiB, want at most %d KiB", name, len(body)>>10, grown>>10, limit>>10)
		}
	}
}

// Names of unknown fields have any length and number. What the server keeps and logs of them is bounded.
func TestUnknownFieldsAreBounded(t *testing.T) { //nolint:paralleltest // it measures the heap
	log := &testlog.Buffer{}
	s := serveRobots(t, slog.New(slog.NewTextHandler(log, nil)), robotHook())
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	for i := range 30 {
		var fields strings.Builder
		for j := range 4 {
			fmt.Fprintf(&fields, `"%d-%s":1,`, 100+10*i+j, strings.Repeat("x", 1<<16))
		}
		if _, failure := convert(t, s, "example.com/v1", robotJSON("v2", "{"+fields.String()+`"arms":[{"Joints":1}]}`)); failure != "" {
			t.Fatal(failure)
		}
	}
	if grown := heap() - min(before, heap()); grown > 2<<20 {
		t.Errorf("the server keeps %d KiB", grown>>10)
	}
	if lines := log.Count("\n"); lines != maxUnknown || log.Len() > 600*lines {
		t.Errorf("%d lines, %d bytes", lines, log.Len())
	}
}

// A review that would need too much memory when it is decoded is rejected before. Others are not.
func TestReviewsThatDecodeToTooMuchAreRejected(t *testing.T) { //nolint:paralleltest // it counts allocations
	list := func(item string, n int) string { return "[" + item + strings.Repeat(","+item, n-1) + "]" }
	pod := func(containers string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":` + containers + `}}`
	}
	container := `{"name":"a","image":"b","env":` + list(`{"name":"a","value":"b"}`, 50) + `,"resources":{"limits":{"cpu":"1"}}}`
	validate := Validating(mapsOptions(), func(context.Context, *Request[*corev1.Pod]) error { return nil })
	mutate := Mutating(mapsOptions(), func(_ context.Context, r *Request[*corev1.Pod]) error { r.Object.Labels = nil; return nil })
	anything := mapsOptions()
	anything.Resources[0].Version = "v1"
	free := Validating(anything, func(context.Context, *Request[*unstructured.Unstructured]) error { return nil })
	tokens := Authenticating(hookName, denyTokens)
	review := func(object, old string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},"operation":"UPDATE","object":` +
			object + `,"oldObject":` + old + `}}`
	}
	million := pod(list("{}", 1_000_000))
	for name, test := range map[string]struct {
		body string
		hook Hook
		code int
	}{
		"validator":        {review(million, "null"), validate, 413},
		"mutator":          {review(million, "null"), mutate, 413},
		"old object":       {review("null", million), validate, 413},
		"unstructured":     {review(pod(list("{}", 1_000_000)), "null"), free, 200},
		"unstructured map": {review(pod(list(`{"a":{}}`, 700_000)), "null"), free, 413},
		"groups":           {strings.Replace(review("null", "null"), `"uid"`, `"userInfo":{"extra":{"a":[]`+strings.Repeat(`,"a":[]`, 900_000)+`}},"uid"`, 1), validate, 200},
		"token":            {`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a","audiences":` + list(`""`, 300_000) + `}}`, tokens, 200},
		"large Pod":        {review(pod(list(container, 500)), pod(list(container, 500))), validate, 200},
		"text":             {review(pod(`[{"name":"`+strings.Repeat("x", 3<<20)+`"}]`), "null"), validate, 200},
		"managed fields":   {review(`{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[{"fieldsV1":`+strings.Repeat(`{"f":`, 500)+"{}"+strings.Repeat("}", 500)+`}]}}`, "null"), validate, 200},
		"fields of fields": {review(`{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[{"fieldsV1":{"a":{}`+strings.Repeat(`,"a":{}`, 400_000)+`}}]}}`, "null"), validate, 200},
	} {
		s := serveRobots(t, nil, test.hook)
		var code int
		var text string
		grown := allocated(func() {
			var response []byte
			code, response = post(t, s, "/"+hookName, []byte(test.body))
			text = string(response)
		})
		if code != test.code || code == 413 && !strings.Contains(text, "128 MiB") {
			t.Errorf("%s: %d %.200s, want %d", name, code, text, test.code)
		}
		if limit := uint64(4*len(test.body) + 4<<20); test.code == 413 && grown > limit {
			t.Errorf("%s: a review of %d KiB allocates %d KiB, want at most %d KiB", name, len(test.body)>>10, grown>>10, limit>>10)
		}
		if grown > 5*maxDecodedBytes {
			t.Errorf("%s: %d MiB", name, grown>>20)
		}
	}
}

// The memory of all reviews that are decoded at the same time is bounded; small reviews do not wait for others.
func TestDecodedReviewsShareABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Validating(mapsOptions(), allowMaps))
		isBig := &places{[]chan struct{}{s.big}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan time.Duration)
		began := time.Now()
		for range 5 {
			go func() { // waited for below
				release, err := s.reserve(ctx, maxDecodedBytes, isBig)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				release()
				done <- time.Since(began)
			}()
		}
		synctest.Wait()
		if release, err := s.reserve(ctx, decodeUnit-1, isBig); err != nil || time.Since(began) > 0 {
			t.Error("a small review waits", err)
		} else {
			release()
		}
		for i := range 5 {
			if took := <-done; took != time.Duration(i/2+1)*time.Second {
				t.Errorf("review %d ends after %s", i, took)
			}
		}
		release, err := s.reserve(ctx, maxDecodedBytes, isBig)
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.reserve(ctx, maxDecodedBytes, isBig)
		if err != nil {
			t.Fatal(err)
		}
		short, cancelShort := context.WithTimeout(ctx, time.Second)
		defer cancelShort()
		if _, err := s.reserve(short, maxDecodedBytes, isBig); err == nil {
			t.Error("the budget has no limit")
		}
		release()
		other()
		if len(s.memory) > 0 || len(s.turn) > 0 {
			t.Error("the budget is not free")
		}
	})
}

// Reviews whose short bodies need much memory never have all slots while they wait for it.
func TestReviewsThatWaitForMemoryLeaveSlots(t *testing.T) {
	t.Parallel()
	list := "[{}" + strings.Repeat(",{}", 8000) + "]"
	admission := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"Pod"},"object":{"spec":{"containers":` + list + `}}}}`
	conversion := conversionReview(robotJSON("v1", `{"size":[{"a":{"b":{}}}`+strings.Repeat(`,{"a":{"b":{}}}`, 8000)+`]}`))
	for path, body := range map[string][]byte{"/pods.example.com": []byte(admission), "/" + robotsCRD: conversion} {
		synctest.Test(t, func(t *testing.T) {
			pods := mapsOptions()
			pods.Name = "pods.example.com"
			s := serveRobots(t, nil, Validating(mapsOptions(), allowMaps), Validating(pods, allow[*corev1.Pod]),
				ConvertingUnstructured(robotsCRD, func(*unstructured.Unstructured, string) error { return nil }))
			for range decodeUnits {
				s.memory <- struct{}{}
			}
			var running sync.WaitGroup
			for range maxReviews + 6 {
				running.Go(func() { post(t, s, path, body) }) // waited for below
			}
			synctest.Wait()
			small, err := json.Marshal(mapReview(mapObject))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if code, text := post(t, s, "/"+hookName, small); code != http.StatusOK || time.Since(began) > 0 {
				t.Errorf("%s: a small review got %d after %s: %s", path, code, time.Since(began), text)
			}
			running.Wait()
			if len(s.slots)+len(s.big)+len(s.turn) > 0 || len(s.memory) != decodeUnits {
				t.Errorf("%s: reviews keep places of the server", path)
			}
		})
	}
}

// Clients can make a review fail as often as they like, with texts of any length. The log gets a few short records a
// minute for each hook, and the number of those that were left out.
func TestFailedReviewsAreLoggedAtABoundedRate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	fails := errors.New("no")
	hooks := map[string]struct {
		hook Hook
		body string
		path string
	}{
		"conversion": {robotHook(), string(conversionReview(`{"kind":"` + long + `"}`)), robotsCRD},
		"validator": {
			Validating(mapsOptions(), func(context.Context, *Request[*corev1.ConfigMap]) error { return Failure(fails) }),
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"ConfigMap"},"name":"` + long + `","namespace":"` + long + `","operation":"` + long + `","userInfo":{"username":"` + long + `"},"object":{}}}`, hookName,
		},
		"other kind": {
			Validating(mapsOptions(), allowMaps),
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"kind":"` + long + `"},"object":{}}}`, hookName,
		},
		"panic": {
			Validating(mapsOptions(), func(context.Context, *Request[*corev1.ConfigMap]) error { panic("oops") }),
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"ConfigMap"},"name":"` + long + `","object":{}}}`, hookName,
		},
		"conversion panic": {
			ConvertingUnstructured(robotsCRD, func(*unstructured.Unstructured, string) error { panic("oops") }),
			string(conversionReview(`{"kind":"Robot","apiVersion":"example.com/` + long + `","metadata":{"name":"` + long + `","namespace":"` + long + `"}}`)), robotsCRD,
		},
		"token": {
			Authenticating(hookName, func(context.Context, *authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus, err error) {
				return status, fails
			}),
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + long + `"}}`, hookName,
		},
		"access": {
			Authorizing(hookName, func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, err error) {
				return status, fails
			}),
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"` + long + `","resourceAttributes":{}}}`, hookName,
		},
		"nobody serves it": {robotHook(), "{}", "other-" + long},
	}
	for name, test := range hooks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &testlog.Buffer{}
				s := serveRobots(t, slog.New(slog.NewTextHandler(log, nil)), test.hook)
				for range 300 {
					post(t, s, "/"+test.path, []byte(test.body))
				}
				for line := range strings.Lines(log.String()) {
					if len(line) > 10_000 {
						t.Errorf("a record has %d bytes: %.100s", len(line), line)
					}
				}
				const stack = 2 // a panic is logged once with its stack
				if lines := log.Count("\n"); lines < 1 || lines > maxRecords+stack || log.Len() > 4000*lines {
					t.Errorf("%d lines, %d bytes", lines, log.Len())
				}
				log.Reset()
				time.Sleep(recordInterval)
				post(t, s, "/"+test.path, []byte(test.body))
				if lines := log.Count("\n"); lines != 1 || !strings.Contains(log.String(), fmt.Sprint("omitted=", 300-maxRecords)) {
					t.Errorf("%d lines: %.300s", lines, log)
				}
			})
		})
	}
}

// A review without a decision is never silent: the failure policy decides on the request, which may be each write of a
// kind.
func TestReviewsWithoutDecisionAreLogged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, contentType, body, want string }{
		"no JSON":      {hookName, "application/json", "x", "status=400"},
		"v1beta1":      {hookName, "application/json", `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}`, "status=400"},
		"content type": {hookName, "application/yaml", "{}", "status=415"},
		"too large":    {hookName, "application/json", strings.Repeat(" ", maxBodyBytes+1), "status=413"},
		"time-out":     {hookName + "?timeout=x", "application/json", "{}", "status=400"},
		"conversion":   {robotsCRD, "application/json", "[]", "status=400"},
		"other hook":   {"other", "application/json", "{}", "path=/other"},
	} {
		log := &testlog.Buffer{}
		s := serveRobots(t, slog.New(slog.NewTextHandler(log, nil)), robotHook(), Validating(mapsOptions(), allowMaps))
		for range 3 * maxRecords {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+test.path, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			s.ServeHTTP(httptest.NewRecorder(), req)
		}
		if lines := log.Count("\n"); lines != maxRecords || !strings.Contains(log.String(), test.want) {
			t.Errorf("%s: %d lines, want %q: %.300s", name, lines, test.want, log)
		}
	}
}

// The estimate of a value is near the memory that its decoder allocates.
func TestEstimatesAreNotTooSmall(t *testing.T) { //nolint:paralleltest // it counts allocations
	for text, value := range map[string]any{
		`{"spec":{"containers":[{}` + strings.Repeat(",{}", 50_000) + `]}}`:                           &corev1.Pod{},
		`{"spec":{"containers":[{"env":[{}` + strings.Repeat(",{}", 50_000) + `]}]}}`:                 &corev1.Pod{},
		`{"data":{"0":"a"` + numbered(50_000, `,"%d":"a"`) + `}}`:                                     &corev1.ConfigMap{},
		`{"metadata":{"ownerReferences":[{}` + strings.Repeat(`,{"controller":true}`, 50_000) + `]}}`: &corev1.ConfigMap{},
		`{"a":[{}` + strings.Repeat(`,{"b":[1,""]}`, 50_000) + `]}`:                                   &map[string]any{},
		`{"a":[[]` + strings.Repeat(`,[[1]]`, 50_000) + `]}`:                                          &map[string]any{},
		`{"a":[1` + strings.Repeat(`,1`, 50_000) + `]}`:                                               &map[string]any{},
	} {
		s := serve(t, Validating(mapsOptions(), allowMaps))
		estimate, err := s.shapes.Measure([]byte(text), reflect.TypeOf(value).Elem(), maxDecodedBytes, nil)
		if err != nil {
			t.Fatal(err)
		}
		grown := allocated(func() {
			if err := json.Unmarshal([]byte(text), value); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%.60s: %d KiB estimated, %d KiB allocated", text, estimate>>10, grown>>10)
		// Lists that grow are allocated several times.
		if int64(grown) > 4*estimate || estimate > 8*int64(grown) { //nolint:gosec // it is small
			t.Errorf("%.60s: %d KiB estimated, %d KiB allocated", text, estimate>>10, grown>>10)
		}
	}
}

func numbered(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i+1)
	}
	return text.String()
}
