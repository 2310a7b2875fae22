package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// create creates a Service and returns the code and the stored object.
func create(t *testing.T, s *apiserver.Server, name, spec string) (int, corev1.Service) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://apiserver.invalid/api/v1/namespaces/shop/services",
		strings.NewReader(`{"metadata":{"name":"`+name+`"},"spec":`+spec+`}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var service corev1.Service
	if err := json.Unmarshal(text, &service); err != nil && res.StatusCode == http.StatusCreated {
		t.Fatal(err)
	}
	return res.StatusCode, service
}

func TestServiceAddressesComeFromSeed(t *testing.T) {
	t.Parallel()
	var first corev1.ServiceSpec
	for range 2 {
		s, err := apiserver.New(apiserver.Config{Seed: 1, Kinds: []*apiserver.Kind{Services()}, NamespacesExist: true})
		if err != nil {
			t.Fatal(err)
		}
		code, a := create(t, s, "a", `{"type":"NodePort","ports":[{"port":80}]}`)
		if code != http.StatusCreated || !strings.HasPrefix(a.Spec.ClusterIP, "10.96.") || a.Spec.Ports[0].NodePort < 30086 {
			t.Fatalf("create: %d %+v", code, a.Spec)
		}
		if first.ClusterIP != "" && (first.ClusterIP != a.Spec.ClusterIP || first.Ports[0] != a.Spec.Ports[0]) {
			t.Errorf("with the same seed: %+v, then %+v", first, a.Spec)
		}
		first = a.Spec
		if code, _ := create(t, s, "b", `{"ports":[{"port":80}],"clusterIP":"`+first.ClusterIP+`"}`); code != http.StatusUnprocessableEntity {
			t.Errorf("create with a used address: %d", code)
		}
		if code, b := create(t, s.Fork(), "b", `{"ports":[{"port":80}]}`); code != http.StatusCreated || b.Spec.ClusterIP == first.ClusterIP {
			t.Errorf("create in a fork: %d, address %s, used %s", code, b.Spec.ClusterIP, first.ClusterIP)
		}
	}
}

// duringWrites calls a function in the first write, between the allocation and the storage.
type duringWrites struct{ once func() }

func (duringWrites) Mutate(context.Context, *apiserver.Review) error { return nil }

func (d *duringWrites) Validate(context.Context, *apiserver.Review) error {
	if f := d.once; f != nil {
		d.once = nil
		f()
	}
	return nil
}

// Concurrent requests never get the same address or port. A failed request releases its own.
func TestConcurrentServices(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/shop/services"
	create := `{"metadata":{"name":"%s"},"spec":{"type":"NodePort","clusterIP":"%s","ports":[{"port":80,"nodePort":%d}]}}`
	const portError = `spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated`
	const addressError = `spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: failed to allocate IP 10.96.0.9: provided IP is already allocated`
	for _, test := range []struct{ method, first, second, want string }{
		{"POST", fmt.Sprintf(create, "a", "", 30001), fmt.Sprintf(create, "b", "", 30001), portError},
		{"POST", fmt.Sprintf(create, "a", "10.96.0.9", 30001), fmt.Sprintf(create, "b", "10.96.0.9", 30002), addressError},
		{"PUT", fmt.Sprintf(create, "old", "", 30001), fmt.Sprintf(create, "b", "", 30001), portError},
	} {
		t.Run(test.method, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			target := path
			if test.method == "PUT" {
				target += "/old"
				mustSend(t, s, "POST", path, "json", fmt.Sprintf(create, "old", "", 30005))
			}
			s.SetAdmission(&duringWrites{once: func() {
				code, text := send(t, s, "POST", path, "json", test.second)
				if code != http.StatusUnprocessableEntity || !strings.Contains(text, test.want) {
					t.Errorf("the concurrent create: %d %s, want %s", code, text, test.want)
				}
			}})
			mustSend(t, s, test.method, target, "json", test.first)
			if code, text := send(t, s, "POST", path, "json", test.second); code != http.StatusUnprocessableEntity {
				t.Errorf("create after the write: %d %s", code, text)
			}
		})
	}
	s := newServer(t)
	mustSend(t, s, "POST", path, "json", fmt.Sprintf(create, "a", "", 30001))
	code, text := send(t, s, "POST", path, "json", fmt.Sprintf(create, "a", "", 30002)) // fails after the allocation
	if code != http.StatusConflict {
		t.Errorf("create of an existing Service: %d %s", code, text)
	}
	mustSend(t, s, "POST", path, "json", fmt.Sprintf(create, "b", "", 30002))
}

// The errors of an update that removes the cluster IP and adds a second family show the address that it would have had.
func TestErrorsOfRemovedClusterIPShowAddress(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const path = "/api/v1/namespaces/shop/services"
	mustSend(t, s, "POST", path, "json", `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`)
	code, text := send(t, s, "PUT", path+"/a", "json",
		`{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"clusterIP":"None","ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv6"]}}`)
	if code != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", code, text)
	}
	for _, want := range []string{
		`spec.clusterIPs[0]: Invalid value: [\"None\",\"10.96.`, `spec.ipFamilies[0]: Invalid value: [\"None\",\"10.96.`,
		`spec.clusterIPs: Invalid value: [\"None\",\"10.96.`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
