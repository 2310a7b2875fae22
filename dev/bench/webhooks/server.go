package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// The paths of both servers.
const (
	pathValidate = "validate.bench.example.com"
	pathMutate   = "mutate.bench.example.com"
	pathConvert  = "gadgets.bench.example.com"
)

// errNoLabel is the decision of the validators on a Pod without the label app.
var errNoLabel = errors.New("the Pod has no label app")

func validate(pod *corev1.Pod) error {
	if pod.Labels["app"] == "" {
		return errNoLabel
	}
	return nil
}

func mutate(pod *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "bench.example.com/checked", "true")
	pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
}

// gadget is a custom resource with the spec S.
type gadget[S any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              S `json:"spec"`
}

// specV1 and specV2 are the specs of the versions; v2 is the hub.
type (
	specV1 struct {
		Image string            `json:"image"`
		Port  int32             `json:"port"`
		Env   map[string]string `json:"env,omitempty"`
	}
	specV2 struct {
		Container containerV2 `json:"container"`
	}
	containerV2 struct {
		Image string  `json:"image"`
		Port  int32   `json:"port"`
		Env   []envV2 `json:"env,omitempty"`
	}
	envV2 struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	gadgetV1 = *gadget[specV1]
	gadgetV2 = *gadget[specV2]
)

// DeepCopyObject implements runtime.Object. Neither server copies an object.
func (g *gadget[S]) DeepCopyObject() runtime.Object {
	c := &gadget[S]{TypeMeta: g.TypeMeta, Spec: g.Spec}
	g.DeepCopyInto(&c.ObjectMeta)
	return c
}

func toV2(from *specV1, to *specV2) {
	to.Container = containerV2{Image: from.Image, Port: from.Port, Env: make([]envV2, 0, len(from.Env))}
	for name, value := range from.Env {
		to.Container.Env = append(to.Container.Env, envV2{name, value})
	}
}

func toV1(from *specV2, to *specV1) {
	*to = specV1{Image: from.Container.Image, Port: from.Container.Port, Env: map[string]string{}}
	for _, e := range from.Container.Env {
		to.Env[e.Name] = e.Value
	}
}

func addGadgets(scheme *runtime.Scheme) error {
	group := schema.GroupVersion{Group: "bench.example.com", Version: "v1"}
	scheme.AddKnownTypeWithName(group.WithKind("Gadget"), &gadget[specV1]{})
	group.Version = "v2"
	scheme.AddKnownTypeWithName(group.WithKind("Gadget"), &gadget[specV2]{})
	return nil
}

// serve runs the server of a library until the input ends. Each line of the input is answered by the usage.
func serve(library string, input io.Reader, output io.Writer) error {
	folder, err := os.MkdirTemp("", "bench-webhooks-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hello := greeting{Address: listener.Addr().String()}
	if hello.CA, err = writeCertificate(folder); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	switch library {
	case evenKeel:
		server, err := newEvenKeel(listener, folder)
		if err != nil {
			return err
		}
		go func() { ended <- server.Run(ctx) }() // waited for below
	case controllerRuntime:
		server, err := newControllerRuntime(listener, folder)
		if err != nil {
			return err
		}
		go func() { ended <- server.Start(ctx) }() // waited for below
	default:
		return fmt.Errorf("the library %q is unknown", library)
	}
	err = answer(hello, input, json.NewEncoder(output))
	cancel()
	return errors.Join(err, <-ended)
}

func answer(hello greeting, input io.Reader, output *json.Encoder) error {
	if err := output.Encode(hello); err != nil {
		return err
	}
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			return err
		}
		cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
		peak, err := peakRSS()
		if err != nil {
			return err
		}
		if err := output.Encode(usage{CPU: cpu, PeakRSS: peak}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// peakRSS returns the peak of this process's resident memory in bytes. Maxrss of Getrusage contains that of the process
// that started this one.
func peakRSS() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			var kilobytes int64
			_, err := fmt.Sscan(value, &kilobytes)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}

func newEvenKeel(listener net.Listener, folder string) (*webhook.Server, error) {
	cluster, err := kube.Connect(&rest.Config{Host: "https://127.0.0.1:1"}, addGadgets)
	if err != nil {
		return nil, err
	}
	options := func(name string) webhook.HookConfig {
		return webhook.HookConfig{Name: name, Operations: []admissionv1.Operation{admissionv1.Create}, Resources: []schema.GroupVersionResource{{Resource: "pods"}}}
	}
	return webhook.New(webhook.Config{
		Cluster: cluster, Listener: listener, CertFile: filepath.Join(folder, "tls.crt"),
		KeyFile: filepath.Join(folder, "tls.key"),
		Hooks: []webhook.Hook{
			webhook.Validating(options(pathValidate), func(_ context.Context, r *webhook.Request[*corev1.Pod]) error {
				return validate(r.Object)
			}),
			webhook.Mutating(options(pathMutate), func(_ context.Context, r *webhook.Request[*corev1.Pod]) error {
				mutate(r.Object)
				return nil
			}),
			webhook.Converting(pathConvert, webhook.Spoke(
				func(from gadgetV1, to gadgetV2) error { toV2(&from.Spec, &to.Spec); return nil },
				func(from gadgetV2, to gadgetV1) error { toV1(&from.Spec, &to.Spec); return nil },
			)),
		},
	})
}

// newControllerRuntime returns a server that listens on the listener's port after it: the library has no option for a
// listener.
func newControllerRuntime(listener net.Listener, folder string) (crwebhook.Server, error) {
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), addGadgets(scheme)); err != nil {
		return nil, err
	}
	converter, err := conversion.NewHubSpokeConverter(&gadget[specV2]{}, conversion.NewSpokeConverter(&gadget[specV1]{},
		func(_ context.Context, from gadgetV2, to gadgetV1) error {
			to.ObjectMeta = from.ObjectMeta
			toV1(&from.Spec, &to.Spec)
			return nil
		},
		func(_ context.Context, from gadgetV1, to gadgetV2) error {
			to.ObjectMeta = from.ObjectMeta
			toV2(&from.Spec, &to.Spec)
			return nil
		},
	))(scheme)
	if err != nil {
		return nil, err
	}
	registry := conversion.NewRegistry()
	if err := registry.RegisterConverter(schema.GroupKind{Group: "bench.example.com", Kind: "Gadget"},
		converter); err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, err
	}
	server := crwebhook.NewServer(crwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: folder})
	server.Register("/"+pathValidate, admission.WithValidator[*corev1.Pod](scheme, podValidator{}))
	server.Register("/"+pathMutate, admission.WithDefaulter[*corev1.Pod](scheme, podDefaulter{}))
	server.Register("/"+pathConvert, conversion.NewWebhookHandler(scheme, registry))
	return server, nil
}

type podValidator struct{}

func (podValidator) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, validate(pod)
}

func (podValidator) ValidateUpdate(_ context.Context, _, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, validate(pod)
}

func (podValidator) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

type podDefaulter struct{}

func (podDefaulter) Default(_ context.Context, pod *corev1.Pod) error { mutate(pod); return nil }

// writeCertificate writes tls.crt and tls.key for 127.0.0.1, and returns the certificate of the authority.
func writeCertificate(folder string) ([]byte, error) {
	authority, err := certificates.NewAuthority("bench", time.Now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	pair, err := authority.NewServer([]string{"127.0.0.1"}, time.Now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	return authority.Cert, errors.Join(
		os.WriteFile(filepath.Join(folder, "tls.crt"), pair.Cert, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), pair.Key, 0o600),
	)
}
