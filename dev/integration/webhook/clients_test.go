package webhook

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/certificates/certtest"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// An API server without a client certificate gets no admission review from a server with ClientCAFile, and conversions.
// TestTokensAndAccess has an API server with one.
func TestClientCertificateMissing(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	server, err := webhook.New(webhook.Config{
		Cluster: g.cluster, Listener: g.listener,
		Hooks:        []webhook.Hook{g.hook(), webhook.Validating(g.options("closed"), func(context.Context, *mapRequest) error { return nil })},
		ClientCAFile: g.file("ca.crt", string(g.newAuthority().Cert)),
		Certificates: &webhook.Certificates{Client: g.client, Secret: g.secret, Register: g.namespace, URL: g.url},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.deleteConfigurations()
	g.runKeeping(rotating, server)
	g.install(server)
	g.awaitConversions()
	clustertest.Eventually(t, func() string { return clustertest.Text(server.Ready()) })
	clustertest.Eventually(t, func() string {
		_, err := client.Create(t.Context(), g.client, g.configMap("one"), client.DryRun())
		if err == nil {
			return "the hook is not called"
		}
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "closed.example.com"`) || !strings.Contains(err.Error(), "the server has asked for the client to provide credentials") {
			t.Fatal(err)
		}
		return ""
	})
}

// clientOf returns the user of a kubeconfig with a client certificate of the authority of the test.
func (e *env) clientOf() *clientcmdapi.AuthInfo {
	e.Helper()
	pair := certtest.NewClient(e, e.authority, time.Now().Add(time.Hour))
	return &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
}

// admissionConfig writes a file for --admission-control-config-file with a client certificate for a webhook server.
func (e *env) admissionConfig(server net.Addr) (path string) {
	e.Helper()
	config := clientcmdapi.NewConfig()
	config.AuthInfos[server.String()] = e.clientOf()
	users := filepath.Join(e.TempDir(), "users")
	if err := clientcmd.WriteToFile(*config, users); err != nil {
		e.Fatal(err)
	}
	plugin := func(name string) string {
		return "- name: " + name + "\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " + users + "}\n"
	}
	return e.file("admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		plugin("ValidatingAdmissionWebhook")+plugin("MutatingAdmissionWebhook"))
}
