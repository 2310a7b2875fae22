package webhook

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// rotating is a policy with an authority for 10 s and a certificate for 4 s.
var rotating = certificates.Policy{AuthorityLife: 15 * time.Second, LeafLife: 6 * time.Second, Overlap: 2 * time.Second, Poll: 200 * time.Millisecond}

// startKeeping runs a server that keeps its certificates, until the test ends or until stop. All of them register the URL.
func (e *env) startKeeping(policy certificates.Policy, listener net.Listener, url string, secret kube.Key, hook webhook.Hook) (server *webhook.Server, stop func()) {
	e.Helper()
	server, err := webhook.New(webhook.Config{
		Cluster: e.cluster, Hooks: []webhook.Hook{hook}, Listener: listener,
		Certificates: &webhook.Certificates{Client: e.client, Secret: secret, Register: e.namespace, URL: url},
	})
	if err != nil {
		e.Fatal(err)
	}
	return server, e.runKeeping(policy, server)
}

func (e *env) listen() net.Listener {
	e.Helper()
	listener, err := (&net.ListenConfig{}).Listen(e.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	return listener
}

// deleteConfigurations deletes what servers have registered, after they have ended.
func (e *env) deleteConfigurations() {
	e.Cleanup(func() {
		ctx := context.WithoutCancel(e.Context())
		config := validatingConfiguration(e.namespace)
		if err := client.IgnoreNotFound(client.Delete(ctx, e.client, config)); err != nil {
			e.Error(err)
		}
		mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: config.ObjectMeta}
		if err := client.IgnoreNotFound(client.Delete(ctx, e.client, mutating)); err != nil {
			e.Error(err)
		}
	})
}

// The API server calls a hook with the failure policy Fail while the certificate and the authority are replaced again and
// again. No call is rejected, and none is left out.
func TestRotationRejectsNoCall(t *testing.T) {
	e := newEnv(t)
	e.deleteConfigurations()
	secret := kube.Key{Namespace: e.namespace, Name: "tls"}
	var calls atomic.Int64
	hook := func(counted bool) webhook.Hook {
		return webhook.Validating(e.options("rotating"), probe("x", func(context.Context, *mapRequest) error {
			if counted {
				calls.Add(1)
			}
			return nil
		}))
	}
	listener := e.listen()
	url := "https://" + listener.Addr().String()
	server, _ := e.startKeeping(rotating, listener, url, secret, hook(true))
	// A second replica takes part in the rotations. The API server does not call it.
	e.startKeeping(rotating, e.listen(), url, secret, hook(false))
	clustertest.Eventually(t, func() string { return clustertest.Text(server.Ready()) })
	e.awaitHooks("x")

	config := rest.CopyConfig(local.RESTConfig())
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var requests, failed atomic.Int64
	authorities, leaves := map[string]bool{}, map[string]bool{}
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() { // waited for below
			m := e.configMap(fmt.Sprint("map-", i))
			for {
				select {
				case <-stop:
					return
				default:
				}
				requests.Add(1)
				if _, err := clients.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					if failed.Add(1) <= 5 {
						t.Error(err)
					}
				}
			}
		})
	}
	began := time.Now()
	wanted := testlength.Count(1, 3)
	clustertest.Eventually(t, func() string {
		current, err := client.Get[*corev1.Secret](t.Context(), e.client, secret)
		if err != nil {
			return err.Error()
		}
		authorities[string(current.Data["signer.crt"])], leaves[string(current.Data["tls.crt"])] = true, true
		if len(authorities) > wanted {
			return ""
		}
		return fmt.Sprintf("%d authorities", len(authorities))
	})
	// Connections with the last certificate are made, too.
	clustertest.Eventually(t, func() string {
		if current, err := client.Get[*corev1.Secret](t.Context(), e.client, secret); err != nil || leaves[string(current.Data["tls.crt"])] {
			return fmt.Sprint("the last certificate is in use: ", err)
		}
		return ""
	})
	close(stop)
	senders.Wait()
	took := time.Since(began)
	t.Logf("%d requests (%.0f per second), %d failed, %d authorities and %d certificates in %s",
		requests.Load(), float64(requests.Load())/took.Seconds(), failed.Load(), len(authorities), len(leaves)+1, took.Round(time.Second))
	if failed.Load() > 0 || calls.Load() != requests.Load() {
		t.Errorf("%d of %d requests failed, and the hook was called %d times", failed.Load(), requests.Load(), calls.Load())
	}
}

// Five replicas start at the same time: they have one authority. The certificates have their long lives, so a second
// authority cannot be the next one.
func TestFiveReplicasMakeOneCA(t *testing.T) {
	e := newEnv(t)
	e.deleteConfigurations()
	policy := certificates.DefaultPolicy()
	policy.Poll = 200 * time.Millisecond
	for round := range testlength.Count(3, 30) {
		secret := kube.Key{Namespace: e.namespace, Name: fmt.Sprint("tls-", round)}
		type replica struct {
			server *webhook.Server
			stop   func()
		}
		first := e.listen()
		listeners := []net.Listener{first, e.listen(), e.listen(), e.listen(), e.listen()}
		replicas := make([]replica, len(listeners))
		var starts sync.WaitGroup
		for i, listener := range listeners {
			starts.Go(func() { // waited for below
				replicas[i].server, replicas[i].stop = e.startKeeping(policy, listener, "https://"+first.Addr().String(), secret,
					webhook.Validating(e.options("five"), func(context.Context, *mapRequest) error { return nil }))
			})
		}
		starts.Wait()
		for _, r := range replicas {
			clustertest.Eventually(t, func() string { return clustertest.Text(r.server.Ready()) })
		}
		current, err := client.Get[*corev1.Secret](t.Context(), e.client, secret)
		if err != nil {
			t.Fatal(err)
		}
		if state := certificates.Parse(current.Data); len(state.Trusted) != 1 {
			t.Errorf("round %d: %d authorities", round, len(state.Trusted))
		}
		for _, r := range replicas {
			r.stop()
		}
	}
}
