package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// clients is the number of calls in progress.
const clients = 8

// manyObjects is the number of objects in the large conversion.
const manyObjects = 10_000

// testCase is a kind of call.
type testCase struct {
	name, path string
	// cost divides the number of calls.
	cost int
	body func() []byte
	// check returns why a response is wrong.
	check func(body []byte) error
	// oneClient makes the calls one after another.
	oneClient bool
}

func cases() []testCase {
	return []testCase{
		{name: "validate a Pod", path: pathValidate, cost: 1, body: podReview, check: allowed(false)},
		{name: "mutate a Pod", path: pathMutate, cost: 1, body: podReview, check: allowed(true)},
		{name: "convert 1 object", path: pathConvert, cost: 1, body: conversions(1), check: converted(1)},
		{
			name: "convert 10,000 objects", path: pathConvert, cost: manyObjects / 10, body: conversions(manyObjects),
			check: converted(manyObjects), oneClient: true,
		},
	}
}

// podReview is a review of the creation of a Pod with two containers.
func podReview() []byte {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-5d4f8c7b6-x2x7l",
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web",
			Tolerations:        []corev1.Toleration{{Key: "node", Operator: corev1.TolerationOpExists}},
		},
	}
	for i := range 2 {
		//nolint:gosec // small
		c := corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/shop/web:v1.2.3",
			Ports: []corev1.ContainerPort{{ContainerPort: int32(8080 + i), Protocol: corev1.ProtocolTCP}},
		}
		for j := range 15 {
			c.Env = append(c.Env,
				corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: fmt.Sprintf("value of the setting %d", j)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	raw := encode(pod)
	return encode(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create, Namespace: pod.Namespace,
			Name:     pod.Name,
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   runtime.RawExtension{Raw: raw},
		},
	})
}

// conversions returns a function that makes a review of n objects of v1.
func conversions(n int) func() []byte {
	return func() []byte {
		review := &apiextensionsv1.ConversionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "ConversionReview"},
			Request: &apiextensionsv1.ConversionRequest{
				UID:               "705ab4f5-6393-11e8-b7cc-42010a800002",
				DesiredAPIVersion: "bench.example.com/v2",
			},
		}
		for i := range n {
			g := &gadget[specV1]{
				TypeMeta: metav1.TypeMeta{APIVersion: "bench.example.com/v1", Kind: "Gadget"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: fmt.Sprintf("gadget-%05d", i), UID: "8c1f",
					Generation: 1, ResourceVersion: "17", Labels: map[string]string{"app": "web"},
				},
				Spec: specV1{Image: "registry.example.com/shop/web:v1.2.3", Port: 8080, Env: map[string]string{}},
			}
			for j := range 10 {
				g.Spec.Env[fmt.Sprintf("SETTING_%d", j)] = fmt.Sprintf("value of the setting %d", j)
			}
			review.Request.Objects = append(review.Request.Objects, runtime.RawExtension{Raw: encode(g)})
		}
		return encode(review)
	}
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func allowed(patched bool) func([]byte) error {
	return func(body []byte) error {
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			return err
		}
		if r := review.Response; r == nil || !r.Allowed || (len(r.Patch) > 0) != patched {
			return fmt.Errorf("the response is %s", body)
		}
		return nil
	}
}

func converted(n int) func([]byte) error {
	return func(body []byte) error {
		var review apiextensionsv1.ConversionReview
		if err := json.Unmarshal(body, &review); err != nil {
			return err
		}
		r := review.Response
		if r == nil || r.Result.Status != metav1.StatusSuccess || len(r.ConvertedObjects) != n {
			return fmt.Errorf("the response is %.500s", body)
		}
		var last gadget[specV2]
		if err := json.Unmarshal(r.ConvertedObjects[n-1].Raw, &last); err != nil {
			return err
		}
		if last.APIVersion != "bench.example.com/v2" || last.Name != fmt.Sprintf("gadget-%05d", n-1) ||
			len(last.Spec.Container.Env) != 10 {
			return fmt.Errorf("the last object is %+v", last)
		}
		return nil
	}
}

// load makes calls, and returns their sorted durations.
func (p *process) load(ctx context.Context, c testCase, calls int) ([]time.Duration, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA) {
		return nil, errors.New("the server's certificate is not valid")
	}
	parallel := clients
	if c.oneClient {
		parallel = 1
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		MaxIdleConnsPerHost: parallel,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	url, body := "https://"+p.Address+"/"+c.path+"?timeout=30s", c.body()
	if err := p.await(ctx, client); err != nil {
		return nil, err
	}

	times := make([]time.Duration, calls)
	errs := make([]error, parallel)
	var next atomic.Int64
	var senders sync.WaitGroup
	for s := range parallel {
		senders.Go(func() { // waited for below
			for i := int(next.Add(1)) - 1; i < calls && errs[s] == nil; i = int(next.Add(1)) - 1 {
				began := time.Now()
				response, err := post(ctx, client, url, body)
				times[i] = time.Since(began)
				if err == nil {
					err = c.check(response)
				}
				errs[s] = err
			}
		})
	}
	senders.Wait()
	slices.Sort(times)
	return times, errors.Join(errs...)
}

// await waits until the server accepts connections.
func (p *process) await(ctx context.Context, client *http.Client) error {
	var last error
	for range 500 {
		response, err := post(ctx, client, "https://"+p.Address+"/", nil)
		if err == nil || len(response) > 0 {
			return nil
		}
		last = err
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return last
}

// post returns the body of a response, and an error if its status is not 200.
func post(ctx context.Context, client *http.Client, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", response.Status, text)
	}
	return text, err
}
