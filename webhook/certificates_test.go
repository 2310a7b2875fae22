package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// world is an API server with the replicas of a program that keeps certificates.
type world struct {
	*testing.T
	*apitest.Server
	replicas []*Server
	client   *client.Client // of a user
	accepted map[string]bool
	bundles  [][]byte  // the last bundles of the configurations
	differ   time.Time // since when the configurations have different bundles
	leaves   map[string]bool
	issuers  map[string]bool
}

var (
	tlsSecret = kube.Key{Namespace: "shop", Name: "operator-tls"}                                                                        //nolint:gochecknoglobals // a constant
	policy    = certificates.Policy{AuthorityLife: 9 * time.Hour, LeafLife: 3 * time.Hour, Overlap: 15 * time.Minute, Poll: time.Minute} //nolint:gochecknoglobals // a constant
)

const check = time.Minute

func newWorld(t *testing.T, kinds ...*apiserver.Kind) *world {
	t.Helper()
	register := admissionregistrationv1.SchemeGroupVersion
	w := &world{T: t, accepted: map[string]bool{}, leaves: map[string]bool{}, issuers: map[string]bool{}, Server: apitest.New(append(
		kinds, apiserver.Secrets(),
		apitest.ClusterScoped(apiserver.Builtin[admissionregistrationv1.ValidatingWebhookConfiguration](register.WithKind("ValidatingWebhookConfiguration"), "validatingwebhookconfigurations", admissionregistrationv1.AddToScheme)),
		apitest.ClusterScoped(apiserver.Builtin[admissionregistrationv1.MutatingWebhookConfiguration](register.WithKind("MutatingWebhookConfiguration"), "mutatingwebhookconfigurations", admissionregistrationv1.AddToScheme)),
	)...)}
	w.client = w.newClient("user")
	return w
}

func (w *world) newClient(name string) *client.Client {
	w.Helper()
	cluster, err := kube.Connect(w.Config(name))
	if err != nil {
		w.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: name})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func certificatesFor(c *client.Client) *Certificates {
	return &Certificates{
		Client: c, Secret: tlsSecret, Register: "operator",
		URL: "https://operator.shop.svc",
	}
}

// newServer returns a server with the hooks and with certificates. It does not run.
func (w *world) newServer(c *client.Client, hooks ...Hook) *Server {
	w.Helper()
	server, err := New(Config{Cluster: c.Cluster(), Hooks: hooks, Listen: "127.0.0.1:0", Certificates: certificatesFor(c)})
	if err != nil {
		w.Fatal(err)
	}
	return server
}

// validatingOnly returns the hooks of a version of the operator without a mutating hook.
func validatingOnly() []Hook { return []Hook{Validating(mapsOptions(), allowMaps)} }

func validatingAndMutating() []Hook {
	other := mapsOptions()
	other.Name = "mutating.example.com"
	return append(validatingOnly(), Mutating(other, allowMaps))
}

// start starts a replica without its HTTP server, until the test ends or until stop. prepare changes it before.
func (w *world) start(prepare ...func(*Server)) (replica *Server, stop func()) {
	w.Helper()
	replica = w.newServer(w.newClient("operator"), validatingAndMutating()...)
	for _, change := range prepare {
		change(replica)
	}
	w.replicas = append(w.replicas, replica)
	return replica, w.keep(replica)
}

// keep maintains the certificates of a server, until the test ends or until stop.
func (w *world) keep(server *Server) (stop func()) {
	server.keeper.listening = func() error { return nil }
	ctx, cancel := context.WithCancel(certificates.WithPolicy(w.Context(), policy))
	var running sync.WaitGroup
	running.Go(func() { server.keeper.run(ctx) }) // waited for by stop
	stop = func() { cancel(); running.Wait() }
	w.Cleanup(stop)
	return stop
}

// mutatingHooks returns the number of mutating hooks that are registered.
func (w *world) mutatingHooks() int {
	w.Helper()
	mutating, err := client.Get[*admissionregistrationv1.MutatingWebhookConfiguration](w.Context(), w.client, kube.Key{Name: "operator"})
	if err != nil {
		w.Fatal(err)
	}
	return len(mutating.Webhooks)
}

// bundle returns the bundle of the validating configuration.
func (w *world) bundle() []byte {
	w.Helper()
	bundle, _ := w.readBundles()
	return bundle
}

// readBundles returns the bundles of the configurations. Two replicas that read the Secret before and after it was
// written may each be the last that writes one of the configurations. The one that read it before reads it again after
// policy.Poll and a fifth of that.
func (w *world) readBundles() (inValidating, inMutating []byte) {
	w.Helper()
	validating, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](w.Context(), w.client, kube.Key{Name: "operator"})
	if err != nil {
		w.Fatal(err)
	}
	mutating, err := client.Get[*admissionregistrationv1.MutatingWebhookConfiguration](w.Context(), w.client, kube.Key{Name: "operator"})
	if err != nil {
		w.Fatal(err)
	}
	inValidating, inMutating = validating.Webhooks[0].ClientConfig.CABundle, mutating.Webhooks[0].ClientConfig.CABundle
	switch {
	case bytes.Equal(inValidating, inMutating):
		w.differ = time.Time{}
	case w.differ.IsZero():
		w.differ = time.Now()
	case time.Since(w.differ) >= 2*policy.Poll:
		w.Errorf("the configurations have had different bundles since %s", w.differ)
	}
	return inValidating, inMutating
}

// run checks for a time that an API server accepts each replica, also if its bundle is three minutes old.
func (w *world) run(d time.Duration) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(check) {
		validating, mutating := w.readBundles()
		w.bundles = append(w.bundles, validating, mutating)
		w.bundles = w.bundles[max(0, len(w.bundles)-6):]
		for _, bundle := range w.bundles {
			for i, replica := range w.replicas {
				pair, err := replica.keeper.certificate()
				if err != nil {
					w.Fatalf("replica %d: %v", i, err)
				}
				w.leaves[string(pair.Certificate[0])] = true
				w.issuers[string(pair.Leaf.AuthorityKeyId)] = true
				key := string(bundle) + string(pair.Certificate[0])
				if w.accepted[key] && time.Now().Before(pair.Leaf.NotAfter) {
					continue
				}
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(bundle)
				if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "operator.shop.svc", CurrentTime: time.Now()}); err != nil {
					w.Fatalf("replica %d at %s: %v", i, time.Now(), err)
				}
				w.accepted[key] = true
			}
		}
	}
}

// secret returns the Secret, and writes it if change is not nil.
func (w *world) secret(change func(*corev1.Secret)) *corev1.Secret {
	w.Helper()
	secret, err := client.Get[*corev1.Secret](w.Context(), w.client, tlsSecret)
	if err == nil && change != nil {
		change(secret)
		secret, err = client.Update(w.Context(), w.client, secret)
	}
	if err != nil {
		w.Fatal(err)
	}
	return secret
}

// Five replicas start at once: they have one authority and one certificate. Three of them end. Authority and certificate
// are replaced several times, and the API server accepts each replica at all times.
func TestFiveReplicasRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var stops []func()
		for range 5 {
			_, stop := w.start()
			stops = append(stops, stop)
		}
		time.Sleep(time.Second)
		w.run(time.Minute)
		if len(w.leaves) != 1 || len(w.issuers) != 1 || bytes.Count(w.bundle(), []byte("BEGIN")) != 1 {
			t.Errorf("%d certificates and %d authorities at the start", len(w.leaves), len(w.issuers))
		}
		for _, replica := range w.replicas {
			if err := replica.keeper.ready(); err != nil {
				t.Error(err)
			}
		}
		for _, stop := range stops[2:] {
			stop()
		}
		w.replicas = w.replicas[:2]
		lives := testlength.Count(1, 4)
		w.run(time.Duration(lives) * 7 * time.Hour) // an authority is replaced after 6 hours
		if len(w.issuers) < lives+1 || len(w.leaves) < 3*lives || len(w.leaves) > 7*lives {
			t.Errorf("%d authorities, %d certificates", len(w.issuers), len(w.leaves))
		}
		if secret := w.secret(nil); secret.Type != corev1.SecretTypeTLS {
			t.Errorf("the Secret has the type %s", secret.Type)
		}
	})
}

// Other clients change the Secret and the configurations while three replicas run.
func TestChangesOfOtherClients(t *testing.T) {
	t.Parallel()
	foreign, err := certificates.NewAuthority("foreign", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), 9*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := foreign.NewServer([]string{"operator.shop.svc"}, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), 3*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(w *world)
		// same is true if the certificate must not change.
		same bool
	}{
		"Secret deleted": {func(w *world) {
			if err := client.Delete(w.Context(), w.client, w.secret(nil)); err != nil {
				w.Fatal(err)
			}
		}, true},
		"Secret emptied": {func(w *world) {
			w.secret(func(s *corev1.Secret) { s.Data = map[string][]byte{"tls.crt": nil, "tls.key": nil} })
		}, true},
		"field added":      {func(w *world) { w.secret(func(s *corev1.Secret) { s.Data["x"] = []byte("y") }) }, true},
		"bundle removed":   {func(w *world) { w.secret(func(s *corev1.Secret) { delete(s.Data, "ca.crt") }) }, true},
		"key lost":         {func(w *world) { w.secret(func(s *corev1.Secret) { delete(s.Data, "signer.key") }) }, true},
		"certificate lost": {func(w *world) { w.secret(func(s *corev1.Secret) { s.Data["tls.crt"] = nil }) }, false},
		"authority replaced": {func(w *world) {
			w.secret(func(s *corev1.Secret) {
				s.Data = map[string][]byte{"signer.crt": foreign.Cert, "signer.key": foreign.Key, "tls.crt": nil, "tls.key": nil}
			})
		}, false},
		"authority and certificate replaced": {func(w *world) {
			w.secret(func(s *corev1.Secret) {
				s.Data = map[string][]byte{"ca.crt": foreign.Cert, "signer.crt": foreign.Cert, "signer.key": foreign.Key, "tls.crt": leaf.Cert, "tls.key": leaf.Key}
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for range 3 {
					w.start()
				}
				time.Sleep(time.Second)
				w.run(minutes(5, 50))
				before := w.secret(nil)
				test.change(w)
				w.run(minutes(20, 30)) // a new certificate is served after the overlap of 15 minutes
				after := w.secret(nil)
				if same := bytes.Equal(before.Data["tls.crt"], after.Data["tls.crt"]) && bytes.Equal(before.Data["signer.key"], after.Data["signer.key"]); same != test.same {
					t.Errorf("the same certificate: %t, want %t", same, test.same)
				}
				for i, replica := range w.replicas {
					pair, err := replica.keeper.certificate()
					if err != nil {
						t.Fatal(err)
					}
					served, err := certificates.Parse(after.Data).TLS()
					if err != nil || !bytes.Equal(pair.Certificate[0], served.Certificate[0]) {
						t.Errorf("replica %d serves another certificate than that of the Secret (%v)", i, err)
					}
				}
				w.run(minutes(30, 120)) // at full length, the certificate is replaced
			})
		})
	}
}

// Certificates that a replica wrote while its clock was ahead are replaced by a new replica, by one with the correct
// clock, and by the one that wrote and serves them after its clock was corrected; also if the Secret was deleted.
func TestCertificatesOfClockThatWasAheadAreReplaced(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ahead, _, err := certificates.State{}.Advance(policy, []string{"operator.shop.svc"}, time.Now().Add(48*time.Hour), false)
			if err != nil {
				t.Fatal(err)
			}
			served, err := ahead.TLS()
			if err != nil {
				t.Fatal(err)
			}
			if !deleted {
				_, err = client.Create(t.Context(), w.client, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tlsSecret.Namespace, Name: tlsSecret.Name}, Data: ahead.Data()})
				if err != nil {
					t.Fatal(err)
				}
			}
			w.start(func(writer *Server) { writer.keeper.last, writer.keeper.serving = ahead, served })
			w.start()
			time.Sleep(2 * time.Second)
			w.run(minutes(5, 200))
		})
	}
}

// minutes returns a number of minutes as testlength.Count does.
func minutes(bounded, full int) time.Duration {
	return time.Duration(testlength.Count(bounded, full)) * time.Minute
}

// A Secret of another program keeps its data, and the server is not ready. It uses the Secret when that is empty.
func TestOtherSecretsKeepTheirData(t *testing.T) {
	t.Parallel()
	for key, data := range map[string]map[string][]byte{
		"password": {"password": []byte("x")},
		"tls.crt":  {"tls.crt": []byte("x"), "tls.key": []byte("y")},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				secret := &corev1.Secret{Data: data}
				secret.Namespace, secret.Name = tlsSecret.Namespace, tlsSecret.Name
				if _, err := client.Create(t.Context(), w.client, secret); err != nil {
					t.Fatal(err)
				}
				replica, _ := w.start()
				time.Sleep(10 * time.Minute)
				if diff := cmp.Diff(data, w.secret(nil).Data); diff != "" {
					t.Errorf("the Secret is changed: %s", diff)
				}
				if err := replica.keeper.ready(); err == nil || !strings.Contains(err.Error(), "the Secret shop/operator-tls has "+key+", and no authority") {
					t.Error(err)
				}
				w.secret(func(s *corev1.Secret) { s.Data = map[string][]byte{key: nil} })
				time.Sleep(2 * time.Minute)
				if err := replica.keeper.ready(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A second call of Run must not use the state of the first one.
func TestServerRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.newServer(w.newClient("operator"), validatingOnly()...)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- server.Run(ctx) }() // waited for below
	}
	if err := <-results; err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Error(err)
	}
	cancel()
	if err := <-results; err != nil {
		t.Error(err)
	}
	if err := server.Run(ctx); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// The configurations that another client changes or deletes are applied again within three minutes.
func TestConfigurationsAreRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		time.Sleep(time.Second)
		w.run(time.Minute)
		before := w.bundle()
		configuration, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
		if err != nil {
			t.Fatal(err)
		}
		configuration.Webhooks[0].ClientConfig.CABundle = []byte("x")
		ignore := admissionregistrationv1.Ignore
		configuration.Webhooks[0].FailurePolicy = &ignore
		if _, err := client.Update(t.Context(), w.client, configuration); err != nil {
			t.Fatal(err)
		}
		mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "operator"}}
		if err := client.Delete(t.Context(), w.client, mutating); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		restored, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
		if err != nil || *restored.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail || !bytes.Equal(w.bundle(), before) {
			t.Error("the configuration is not restored", err)
		}
	})
}

// Changes that a server-side apply keeps are taken back too: it merges conditions and hooks of other field owners, and
// leaves fields alone that it does not set.
func TestConfigurationsLoseChangesOfOtherFieldOwners(t *testing.T) {
	t.Parallel()
	port := int32(8443)
	namespaced := admissionregistrationv1.NamespacedScope
	for name, change := range map[string]func(*admissionregistrationv1.ValidatingWebhookConfiguration){
		"port": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service.Port = &port
		},
		"scope": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].Rules[0].Scope = &namespaced
		},
		"condition": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		},
		"selector": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"time-out": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].TimeoutSeconds = new(int32(1))
		},
		"hook": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			other := *c.Webhooks[0].DeepCopy()
			other.Name = "other.example.com"
			c.Webhooks = append(c.Webhooks, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				time.Sleep(time.Second)
				get := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
					configuration, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
					if err != nil {
						t.Fatal(err)
					}
					return configuration
				}
				configuration := get()
				before := configuration.DeepCopy()
				change(configuration)
				if _, err := client.Update(t.Context(), w.client, configuration); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Minute)
				restored := get()
				if diff := cmp.Diff(before.Webhooks, restored.Webhooks); diff != "" {
					t.Errorf("the configuration is not restored: %s", diff)
				}
				time.Sleep(10 * time.Minute)
				if version := get().ResourceVersion; version != restored.ResourceVersion {
					t.Errorf("the configuration is written without a change: version %s became %s", restored.ResourceVersion, version)
				}
			})
		})
	}
}

// Without the permission for one configuration, the other one has the bundle, and the error names the first.
func TestConfigurationsAreIndependent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		refuse := func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if r.Kind.Kind == "MutatingWebhookConfiguration" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "operator", errors.New("no rule"))
				}
				return next(ctx, r)
			}
		}
		c, err := w.newClient("operator").With(func(config *client.Config) { config.Interceptors = append(config.Interceptors, refuse) })
		if err != nil {
			t.Fatal(err)
		}
		for _, hooks := range [][]Hook{validatingAndMutating(), validatingOnly()} {
			server := w.newServer(c, hooks...)
			if err := server.keeper.sync(t.Context(), policy); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "mutatingwebhookconfigurations") {
				t.Error(err)
			}
			validating, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), w.client, kube.Key{Name: "operator"})
			if err != nil || len(validating.Webhooks[0].ClientConfig.CABundle) == 0 {
				t.Fatalf("the other configuration is not registered: %v", err)
			}
			if err := client.Delete(t.Context(), w.client, validating); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// While the configurations cannot be applied, no authority is replaced, and the server is not ready after 5 minutes.
func TestNoRotationWithoutRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		replica, _ := w.start()
		time.Sleep(time.Second)
		w.run(time.Minute)
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, "operator", errors.New("no rule"))
		w.Fail("patch", forbidden)
		w.run(3 * time.Minute)
		if err := replica.keeper.ready(); err != nil {
			t.Error(err)
		}
		w.run(4 * time.Minute)
		if err := replica.keeper.ready(); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
		w.run(8 * time.Hour) // an authority would be replaced after 6 hours
		if len(w.issuers) != 1 {
			t.Errorf("%d authorities", len(w.issuers))
		}
		w.Fail("patch", nil)
		w.run(time.Hour)
		if err := replica.keeper.ready(); err != nil || len(w.issuers) != 2 {
			t.Errorf("%d authorities: %v", len(w.issuers), err)
		}
	})
}

// While the Secret cannot be read, the last certificate is served. Without any, the server is not ready.
func TestUnreadableSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "operator-tls", errors.New("no rule"))
		w.Fail("get", forbidden)
		replica, _ := w.start()
		time.Sleep(time.Minute)
		if _, err := replica.keeper.certificate(); err == nil || !strings.Contains(err.Error(), "Secret shop/operator-tls was not read yet") {
			t.Error(err)
		}
		if err := replica.keeper.ready(); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
		w.Fail("get", nil)
		time.Sleep(time.Minute)
		if err := replica.keeper.ready(); err != nil {
			t.Error(err)
		}
		w.Fail("get", forbidden)
		time.Sleep(10 * time.Minute)
		if _, err := replica.keeper.certificate(); err != nil || !apierrors.IsForbidden(replica.keeper.ready()) {
			t.Error(err, replica.keeper.ready())
		}
	})
}

// While the Secret cannot be written, each replica serves the certificate in it, also one that starts.
func TestImmutableSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, _ := w.start()
		time.Sleep(time.Second)
		w.secret(func(s *corev1.Secret) { s.Immutable = new(true) })
		w.run(policy.LeafLife*2/3 + 10*time.Minute) // the certificate should have been renewed
		second, _ := w.start()
		time.Sleep(time.Second)
		w.run(10 * time.Minute)
		for _, replica := range []*Server{first, second} {
			if err := replica.keeper.ready(); err == nil || !strings.Contains(err.Error(), "write the certificates: ") {
				t.Errorf("the replica is ready: %v", err)
			}
		}
		if err := client.Delete(t.Context(), w.client, w.secret(nil)); err != nil {
			t.Fatal(err)
		}
		w.run(10 * time.Minute)
		if err := errors.Join(first.keeper.ready(), second.keeper.ready()); err != nil {
			t.Error(err)
		}
	})
}

// The former version of the program had a mutating hook. The new one has none: its configuration becomes empty.
func TestFormerHooksAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, stop := w.start()
		time.Sleep(time.Second)
		stop()
		server := w.newServer(w.newClient("operator"), validatingOnly()...)
		if err := server.keeper.sync(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		if n := w.mutatingHooks(); n != 0 {
			t.Errorf("%d former hooks are left", n)
		}
	})
}

// During a rolling update the former version applies the configuration of its mutating hook again, after the new version
// has emptied it. The configuration is empty when only the new version is left.
func TestFormerHooksOfRollingUpdateAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, stop := w.start()
		time.Sleep(time.Second)
		w.keep(w.newServer(w.newClient("operator"), validatingOnly()...))
		time.Sleep(time.Second)
		if n := w.mutatingHooks(); n != 0 {
			t.Errorf("the new version leaves %d former hooks at its start", n)
		}
		time.Sleep(5 * time.Minute)
		stop()
		time.Sleep(5 * time.Minute)
		if n := w.mutatingHooks(); n != 0 {
			t.Errorf("%d hooks are registered that no replica serves", n)
		}
	})
}

// A server that does not listen registers nothing.
func TestNoRegistrationWithoutListener(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	w := newWorld(t)
	c := w.newClient("operator")
	server, err := New(Config{
		Cluster: c.Cluster(), Listen: taken.Addr().String(), Certificates: certificatesFor(c),
		Hooks: validatingOnly(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Error(err)
	}
	if requests := w.Requests(); len(requests) > 0 {
		t.Errorf("the server made requests: %v", requests)
	}
}

func TestNewReportsMistakesOfCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ok := func(context.Context, *Request[*corev1.ConfigMap]) error { return nil }
	dryRun, err := w.client.With(func(c *client.Config) { c.DryRun = true })
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"Client is nil":                 func(c *Config) { c.Certificates.Client = nil },
		"Client is for dry runs":        func(c *Config) { c.Certificates.Client = dryRun },
		`Register is ""`:                func(c *Config) { c.Certificates.Register = "" },
		`Secret is "x"`:                 func(c *Config) { c.Certificates.Secret = kube.Key{Name: "x"} },
		`Register is "A B"`:             func(c *Config) { c.Certificates.Register = "A B" },
		`URL is ""`:                     func(c *Config) { c.Certificates.URL = "" },
		`URL is "http://x"`:             func(c *Config) { c.Certificates.URL = "http://x" },
		"Certificates and CertFile":     func(c *Config) { c.CertFile = "x" },
		"Certificates is set without":   func(c *Config) { c.Listen = "" },
		"Listen and Listener are both ": func(c *Config) { c.Listener = struct{ net.Listener }{} },
	} {
		config := Config{Cluster: w.client.Cluster(), Hooks: []Hook{Validating(mapsOptions(), ok)}, Listen: "127.0.0.1:0", Certificates: certificatesFor(w.client)}
		change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	withoutRegister := certificatesFor(w.client)
	withoutRegister.Register = "" // it is required with admission hooks only
	if _, err := New(Config{Cluster: w.client.Cluster(), Hooks: []Hook{Authenticating("tokens.example.com", denyTokens)}, Listen: "127.0.0.1:0", Certificates: withoutRegister}); err != nil {
		t.Error(err)
	}
}

func denyTokens(context.Context, *authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus, err error) {
	return status, nil
}
