package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Certificates makes a Server keep a certificate authority and its certificate in a Secret that all replicas share, and
// register its hooks with them. All fields are required. Conversions are registered in their CustomResourceDefinitions,
// which the server does not create.
//
// The certificate is replaced after 20 of 30 days, the authority after two thirds of five years. Clients trust a new
// authority for at least 15 minutes before a server has a certificate of it, and the former one for 30 minutes
// afterwards. A Secret that is deleted is created again with the same content, as long as one replica runs.
//
// The program may get, create and update this Secret, get, create and patch the configurations, and patch the
// CustomResourceDefinitions of its conversions.
type Certificates struct {
	// Client makes the requests. Its FieldOwner becomes the field manager of the configurations.
	Client *client.Client
	// Secret has the certificates and their keys. Whoever can read it can pose as this server. A Secret with other data
	// is not changed.
	Secret kube.Key
	// Register is the name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of the hooks.
	// They are applied again every minute, so that changes of other clients do not last. It is required with admission
	// hooks.
	Register string
	// URL is where the API server reaches this server: https://NAME.NAMESPACE.svc for a Service, which the API server
	// finds without DNS, or https://HOST for another address, each with a port (default: 443) and maybe a path. The
	// path of each hook, "/" and its name, is appended. The host is the name in the certificate. The port must lead to
	// Listen: a server that listens elsewhere would receive the reviews.
	URL string
	// BundleOnly is for configurations and definitions that another program installs, for example a chart: the server
	// sets the caBundle of the hooks in them, and no other field. Default: the server registers the hooks.
	BundleOnly bool
}

const (
	// applyInterval is the interval at which the configurations are applied again.
	applyInterval = time.Minute
	// maxFailing is how long the server is ready while it cannot read the Secret or apply the configurations: it works
	// with the last certificate.
	maxFailing = 5 * time.Minute
)

// keeper keeps the certificates of a Server.
type keeper struct {
	config Certificates
	server *Server
	at     address
	logger *slog.Logger
	// listening returns an error until the server listens.
	listening func() error

	// Of the goroutine of run.
	last         certificates.State   // the last state that was read or written
	applied      []byte               // the bundle of the last apply
	appliedAt    time.Time            // of the last apply
	trustedSince map[string]time.Time // by the authority: the first apply of a bundle with it
	reported     string               // the last error that was logged
	checked      bool                 // Resources has no mistakes
	warned       map[string]bool      // the hooks with resources that the cluster lacks

	mu      sync.Mutex
	serving *tls.Certificate // guarded by mu; nil until the first state
	synced  time.Time        // guarded by mu; the end of the last successful sync
	err     error            // guarded by mu; of the last sync
}

func newKeeper(config Certificates, server *Server) (*keeper, error) {
	var errs mistakes
	errs.addIf(config.Client == nil, "Client is nil")
	if config.Client != nil {
		errs.addIf(config.Client.Config().DryRun, "Client is for dry runs: it cannot keep certificates")
	}
	errs.addIf(config.Secret.Namespace == "" || config.Secret.Name == "",
		"Secret is %q: it needs a namespace and a name", config.Secret)
	isAdmission := func(hook Hook) bool { _, ok := hook.protocol.(admission); return ok }
	if problems := validation.IsDNS1123Subdomain(config.Register); len(problems) > 0 &&
		(config.Register != "" || slices.ContainsFunc(server.hooks, isAdmission)) {
		errs.addIf(true, "Register is %q: %s", config.Register, problems[0])
	}
	at, err := parseAddress(config.URL)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &keeper{
		config: config, server: server, at: at, logger: server.logger,
		trustedSince: map[string]time.Time{}, warned: map[string]bool{},
	}, nil
}

// certificate returns the certificate of a new connection.
func (k *keeper) certificate() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving == nil {
		return nil, fmt.Errorf("the certificate in Secret %s was not read yet", k.config.Secret)
	}
	return k.serving, nil
}

// expiry returns the end of the current certificate, or the zero time before the first one.
func (k *keeper) expiry() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving == nil {
		return time.Time{}
	}
	return k.serving.Leaf.NotAfter
}

func (k *keeper) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.synced.IsZero() && k.err != nil:
		return k.err
	case k.synced.IsZero():
		return errors.New("the webhooks are not registered yet")
	case time.Since(k.synced) > maxFailing && k.err != nil:
		return k.err
	case k.serving.Leaf != nil && !validNow(k.serving.Leaf):
		return errors.Join(fmt.Errorf("the certificate in Secret %s is valid from %s to %s, and not now",
			k.config.Secret, k.serving.Leaf.NotBefore.UTC().Format(time.RFC3339),
			k.serving.Leaf.NotAfter.UTC().Format(time.RFC3339)), k.err)
	}
	return nil
}

func validNow(leaf *x509.Certificate) bool {
	now := time.Now()
	return !now.Before(leaf.NotBefore) && now.Before(leaf.NotAfter)
}

// run keeps the certificates until ctx ends.
func (k *keeper) run(ctx context.Context) {
	policy := certificates.PolicyFrom(ctx)
	k.awaitListener(ctx)
	failures := 0
	for ctx.Err() == nil {
		err := k.sync(ctx, policy)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		k.err = err
		if err == nil {
			k.synced = time.Now()
		}
		k.mu.Unlock()
		k.report(ctx, err)
		pause := policy.Poll
		if failures++; err == nil {
			failures = 0
		} else {
			// At the start of a program, its CustomResourceDefinitions may be missing for seconds.
			pause = min(pause, time.Second<<min(failures-1, 10))
		}
		// Replicas that started together do not stay together.
		retryrules.Wait(ctx, pause+rand.N(pause/5+1)) //nolint:gosec // jitter
	}
}

// awaitListener waits until the server listens: if it cannot listen, its hooks must not be registered, because the API
// server would reject each request.
func (k *keeper) awaitListener(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for k.listening() != nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// report logs each error once.
func (k *keeper) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		k.reported = ""
	case err.Error() != k.reported:
		k.reported = err.Error()
		k.logger.ErrorContext(ctx, "webhook certificates not updated", "error", err)
	}
}

// sync reads the state, advances it, registers the hooks, and serves the certificate. If the state cannot be written,
// that in the Secret is used as long as it lasts.
func (k *keeper) sync(ctx context.Context, policy certificates.Policy) error {
	state, err := k.advance(ctx, policy)
	if state.Leaf.Cert == nil {
		return err
	}
	k.last = state
	// A certificate of an authority that clients may not trust yet, because another client has replaced it, is served
	// after they had the time. Before the first apply nothing is known, and there is no other certificate.
	registered := k.register(ctx, state.Bundle())
	return errors.Join(err, k.serve(ctx, state, policy), registered)
}

// advance returns the current state. It writes the state that should follow, unless another replica was faster. If it
// cannot write, it returns the state in the Secret with the error.
func (k *keeper) advance(ctx context.Context, policy certificates.Policy) (certificates.State, error) {
	for {
		secret, err := client.Get[*corev1.Secret](ctx, k.config.Client, k.config.Secret, client.FromAPI())
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return certificates.State{}, fmt.Errorf("read the certificates: %w", err)
		}
		if missing {
			secret = &corev1.Secret{
				Type:       corev1.SecretTypeTLS,
				ObjectMeta: metav1.ObjectMeta{Namespace: k.config.Secret.Namespace, Name: k.config.Secret.Name},
			}
		}
		if err := k.checkData(secret); err != nil {
			return certificates.State{}, err
		}
		state := k.restored(certificates.Parse(secret.Data))
		since, ok := k.trustedSince[string(state.Next.Cert)]
		trusted := ok && time.Since(since) >= policy.Overlap
		next, reasons, err := state.Advance(policy, []string{k.at.name}, time.Now(), trusted)
		if err != nil {
			return certificates.State{}, fmt.Errorf("renew the certificates: %w", err)
		}
		if !missing && len(reasons) == 0 && maps.EqualFunc(secret.Data, next.Data(), bytes.Equal) {
			return next, nil
		}
		secret.Data = next.Data()
		if missing {
			_, err = client.Create(ctx, k.config.Client, secret)
		} else {
			_, err = client.Update(ctx, k.config.Client, secret)
		}
		switch {
		case err == nil:
			k.logger.InfoContext(ctx, "webhook certificates written", "secret", k.config.Secret.String(), "reasons",
				reasons)
			return next, nil
		case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || errors.Is(err, client.ErrGone):
			// Another replica was faster: read its state.
			if ctx.Err() != nil {
				return certificates.State{}, ctx.Err()
			}
		default:
			return state, fmt.Errorf("write the certificates: %w", err)
		}
	}
}

// checkData returns an error if the Secret has data that a server has not written, which must not be lost because of a
// wrong name. A Secret that has had an authority is damaged.
func (k *keeper) checkData(secret *corev1.Secret) error {
	if k.last.Signer.Cert != nil || certificates.HasState(secret.Data) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(secret.Data[key]) > 0 {
			return fmt.Errorf("the Secret %s has %s, and no authority of a webhook server: use another Secret, or "+
				"delete this one", k.config.Secret, key)
		}
	}
	return nil
}

// restored returns a state with its lost parts. If the authority is lost, the last known state is restored. If another
// client has replaced it, clients must trust the last known authorities until each replica has a new certificate.
func (k *keeper) restored(state certificates.State) certificates.State {
	if k.last.Signer.Cert == nil {
		return state
	}
	if state.Signer.Cert == nil {
		trusted := state.Trusted
		state = k.last
		state.Trust(trusted)
		return state
	}
	if !slices.ContainsFunc(k.last.Trusted, func(cert []byte) bool { return bytes.Equal(cert, state.Signer.Cert) }) {
		state.Trust(k.last.Trusted)
		state.Leaf = certificates.Pair{}
	}
	return state
}

// serve serves the certificate of state, if clients trust it.
func (k *keeper) serve(ctx context.Context, state certificates.State, policy certificates.Policy) error {
	pair, err := state.TLS()
	if err != nil {
		return fmt.Errorf("read the certificate in Secret %s: %w", k.config.Secret, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving != nil {
		if bytes.Equal(k.serving.Certificate[0], pair.Certificate[0]) {
			return nil
		}
		since, ok := k.trustedSince[string(state.Issuer())]
		if validNow(k.serving.Leaf) && (!ok || time.Since(since) < policy.Overlap) {
			return nil
		}
		k.logger.InfoContext(ctx, "webhook certificate replaced", "secret", k.config.Secret.String(), "expires",
			pair.Leaf.NotAfter)
	}
	k.serving = pair
	return nil
}
