package leader

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/webhook"
)

const manifestsNamespace = "fenced-webhooks"

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l // the server closes it
}

const letters = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: letters.fenced.example.com}
spec:
  group: fenced.example.com
  scope: Namespaced
  names: {plural: letters, singular: letter, kind: Letter, listKind: LetterList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// fencedProgram is a fenced operator with a webhook and a definition; version 2 has a second webhook, and a second version
// of the definition.
func fencedProgram(identity string, version int) func(context.Context, *evenkeel.Program) error {
	return func(ctx context.Context, p *evenkeel.Program) error {
		cluster, err := p.Connect()
		if err != nil {
			return err
		}
		p.Manager.LeaderElection = &leader.Config{Fence: true, Identity: identity}
		config := evenkeel.Config[*policyv1.PodDisruptionBudget]{
			Name: "web", Cluster: cluster, Handle: func(context.Context, *policyv1.PodDisruptionBudget, *evenkeel.Run) error { return nil },
			Validate: func(context.Context, *webhook.Request[*policyv1.PodDisruptionBudget]) error { return nil },
		}
		manifest := letters
		if version == 2 {
			manifest += "  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"
			config.Default = func(context.Context, *webhook.Request[*policyv1.PodDisruptionBudget]) error { return nil }
		}
		operator, err := evenkeel.New(config)
		if err != nil {
			return err
		}
		definitions, err := crd.Parse([]byte(manifest))
		if err != nil {
			return err
		}
		p.Install(definitions)
		return p.Run(ctx, operator)
	}
}

// A rolling update of a fenced program with webhooks and definitions becomes ready beside the old version, and leads after
// it.
func TestFencedProgramWithWebhooksIsUpdated(t *testing.T) {
	testlength.OnlyLong(t)
	clients, err := kubernetes.NewForConfig(local.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	admin := clustertest.Connect(t, local.RESTConfig())
	c := clustertest.Client(t, admin)
	text, err := evenkeel.Manifests("web", fencedProgram("", 1), "--image=x", "--namespace="+manifestsNamespace, "--", "--webhook-listen=:9443")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &obj.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Apply(t.Context(), c, obj, client.Force()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_ = clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "web", metav1.DeleteOptions{})
		_ = clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, "web", metav1.DeleteOptions{})
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "letters.fenced.example.com"}}
		if err := client.Delete(ctx, c, definition); err != nil {
			t.Error(err)
		}
	})
	const url = "https://127.0.0.1:9" // of the Service: the same for all Pods; nothing calls it
	start := func(name string, version int) (stop func()) {
		pod, err := clients.CoreV1().Pods(manifestsNamespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			ServiceAccountName: "web", Containers: []corev1.Container{{Name: "c", Image: "x"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token, err := clients.CoreV1().ServiceAccounts(manifestsNamespace).CreateToken(t.Context(), "web", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := local.RESTConfig()
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(clientcmdapi.Config{
			CurrentContext: "c",
			Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"c": {Token: token.Status.Token}},
		}, path); err != nil {
			t.Fatal(err)
		}
		p := evenkeel.NewProgram("web", "--kubeconfig="+path, "--lease-namespace="+manifestsNamespace,
			"--webhook-url="+url, "--lease-duration=4s", "--renew-deadline=3s", "--retry-period=500ms")
		p.Manager.IgnoreSignals, p.Manager.Listener, p.Webhooks.Listener = true, listen(t), listen(t)
		address := "http://" + p.Manager.Listener.Addr().String()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- fencedProgram(string(pod.UID)+"_x", version)(ctx, p) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the program %s: %v", name, err)
			}
		})
		t.Cleanup(stop)
		clustertest.Eventually(t, func() string {
			res, err := http.Get(address + "/readyz?verbose") //nolint:noctx // a test
			if err != nil {
				return err.Error()
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode == http.StatusOK {
				return ""
			}
			return fmt.Sprint(res.Status, " ", string(body))
		})
		return stop
	}
	leads := func(name string) {
		pod, err := clients.CoreV1().Pods(manifestsNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func() string {
			lease, err := client.Get[*coordinationv1.Lease](t.Context(), c, kube.Key{Namespace: manifestsNamespace, Name: "web"})
			if err != nil {
				return err.Error()
			}
			if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != string(pod.UID)+"_x" {
				return fmt.Sprintf("the lease is held by %v", lease.Spec.HolderIdentity)
			}
			return ""
		})
	}
	stopOld := start("old", 1)
	leads("old")
	stopSame := start("same", 1)
	start("new", 2)
	definition, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), c, kube.Key{Name: "letters.fenced.example.com"})
	if err != nil || len(definition.Spec.Versions) != 2 {
		t.Errorf("the standby has not installed its definition: %v", err)
	}
	stopSame()
	stopOld()
	leads("new")
}
