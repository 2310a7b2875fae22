package evenkeel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// The settings of the manager's server (a certificate of /metrics, client certificates of Prometheus) must not take the
// webhooks their certificates and their registration.
func TestSettingsOfManagerKeepCertificatesOfWebhooks(t *testing.T) {
	t.Parallel()
	ofProcess, err := certificates.OfProcess("metrics")
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]func(*tls.Config){
		"nothing":     func(*tls.Config) {},
		"version":     func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 },
		"certificate": func(c *tls.Config) { c.Certificates = []tls.Certificate{ofProcess} },
		"function": func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &ofProcess, nil }
		},
		"clients": func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		},
	} {
		for _, url := range []string{"", "https://web:9443"} {
			t.Run(name+url, func(t *testing.T) {
				p := NewProgram("web", "--kubeconfig", kubeconfigFile(t), "--webhook-listen=127.0.0.1:0")
				if _, err := p.Connect(); err != nil {
					t.Fatal(err)
				}
				p.Manager.TLS, p.webhookURL = settings, url
				p.Serve(webhook.Validating(webhook.HookConfig{}, func(context.Context, *webhook.Request[*corev1.Service]) error {
					return nil
				}))
				runnables, err := p.webhooks()
				if err != nil {
					t.Fatal(err)
				}
				if reflect.ValueOf(runnables[0].Runner).Elem().FieldByName("keeper").IsNil() {
					t.Error("the webhooks are neither registered, nor have they a certificate that the API server trusts; the log says nothing")
				}
			})
		}
	}
}
