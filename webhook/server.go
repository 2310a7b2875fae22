package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/httpserver"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// maxBodyBytes is the limit of a review. The API server accepts objects of 3 MiB (MaxRequestBodyBytes in
	// k8s.io/apiserver/pkg/server/config.go), and a review has two of them.
	maxBodyBytes = 7 << 20
	// maxReviews is the number of reviews that are handled at the same time. Further ones wait, so that the memory of the
	// server is limited.
	maxReviews = 64
	// shutdownTimeout is the time for reviews in progress at the end: the longest time-out of a hook.
	shutdownTimeout = 30 * time.Second
)

// Config configures a Server.
type Config struct {
	// Cluster knows the kinds of the hooks' Go types. It is required; the server makes no requests to it.
	Cluster *kube.Cluster
	// Hooks are served at the paths "/" and their names. At least one is required.
	Hooks []Hook
	// Listen is the address of the server, for example ":9443", or several with commas. Default: none: the Server does not
	// run, and is only an http.Handler.
	Listen string
	// Listener is used in place of Listen. Run closes it.
	Listener net.Listener
	// CertFile and KeyFile are PEM files of the certificate and its key, for example of a mounted Secret. They are read
	// again when they change. They, or Certificates, are required with Listen or Listener: the API server calls webhooks
	// with TLS only. Clients need TLS 1.3.
	CertFile, KeyFile string
	// Certificates makes the server create its certificates and register the hooks.
	Certificates *Certificates
	// Logger receives failures at error level, and rejected requests at debug level. Default: slog.Default() at the time
	// of New.
	Logger *slog.Logger
}

// Server serves hooks. New creates one. It is safe for concurrent use.
type Server struct {
	hooks  []Hook
	mux    *http.ServeMux
	http   *httpserver.Server // nil without an address
	keeper *keeper            // nil without Certificates
	guard  *usercode.Guard
	logger *slog.Logger
	slots  chan struct{} // has room for maxReviews
}

// New returns a Server. It reads the certificate, and does not listen. The error lists all mistakes in config.
func New(config Config) (*Server, error) {
	s := &Server{mux: http.NewServeMux(), logger: config.Logger, slots: make(chan struct{}, maxReviews)}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.guard = usercode.NewGuard(s.logger)
	var errs []error
	if config.Cluster == nil {
		return nil, errors.New("create a webhook server: Cluster is nil")
	}
	if len(config.Hooks) == 0 {
		errs = append(errs, errors.New("Hooks is empty")) //nolint:staticcheck // the name of a field
	}
	names := map[string]bool{}
	for i, hook := range config.Hooks {
		if hook.review == nil {
			errs = append(errs, fmt.Errorf("Hooks[%d] is empty: use Validating or Mutating", i)) //nolint:staticcheck // the name of a field
			continue
		}
		mistakes := hook.check(config.Cluster)
		name := hook.options.Name
		if names[name] {
			mistakes = append(mistakes, errors.New("another hook has the same name"))
		}
		names[name] = true
		for _, err := range mistakes {
			errs = append(errs, fmt.Errorf("Hooks[%d] %q: %w", i, name, err)) //nolint:staticcheck // the name of a field
		}
		if len(mistakes) > 0 {
			continue
		}
		kind, _ := hook.kind(config.Cluster) // checked above
		s.hooks = append(s.hooks, hook)
		s.mux.Handle("POST /"+name, s.handler(hook, kind))
	}
	server, err := s.newServer(config)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("create a webhook server: %w", err)
	}
	s.http = server
	if s.keeper != nil {
		s.keeper.listening = server.Ready
	}
	return s, nil
}

// newServer returns the HTTP server, or nil without an address.
func (s *Server) newServer(config Config) (*httpserver.Server, error) {
	if config.Listen == "" && config.Listener == nil {
		if config.CertFile != "" || config.KeyFile != "" || config.Certificates != nil {
			return nil, errors.New("CertFile, KeyFile or Certificates is set without Listen: set Listen, for example to \":9443\"")
		}
		return nil, nil
	}
	var errs []error
	if config.Listen != "" && config.Listener != nil {
		errs = append(errs, errors.New("Listen and Listener are both set: use one")) //nolint:staticcheck // the name of a field
	}
	if config.Certificates != nil {
		var err error
		if s.keeper, err = newKeeper(*config.Certificates, s); err != nil {
			errs = append(errs, fmt.Errorf("Certificates: %w", err))
		}
		if config.CertFile != "" || config.KeyFile != "" {
			errs = append(errs, errors.New("Certificates and CertFile or KeyFile are set: use one"))
		}
	} else if config.CertFile == "" || config.KeyFile == "" {
		errs = append(errs, errors.New("CertFile and KeyFile, or Certificates, are required with Listen: the API server calls webhooks with TLS only"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	settings := httpserver.Config{
		Handler: s, CertFile: config.CertFile, KeyFile: config.KeyFile, MaxBodyBytes: maxBodyBytes,
		ShutdownTimeout: shutdownTimeout, Logger: s.logger,
	}
	if s.keeper != nil {
		settings.Certificate = s.keeper.certificate
	}
	if config.Listener != nil {
		settings.Listeners = []net.Listener{config.Listener}
	}
	for address := range strings.SplitSeq(config.Listen, ",") {
		if address = strings.TrimSpace(address); address != "" {
			settings.Addresses = append(settings.Addresses, address)
		}
	}
	return httpserver.New(settings)
}

// Name returns the default name of the server in a manager: webhooks.
func (s *Server) Name() string { return "webhooks" }

// Ready returns an error until the server listens, and while its certificate is not valid. With Config.Certificates it
// also returns an error until the hooks are registered, and while the Secret or the configurations could not be
// read or written for 5 minutes.
func (s *Server) Ready() error {
	if s.http == nil {
		return errNoAddress
	}
	if err := s.http.Ready(); err != nil || s.keeper == nil {
		return err
	}
	return s.keeper.ready()
}

var errNoAddress = errors.New("the webhook server has no address: set Config.Listen")

// Run serves until ctx ends, and then waits up to 30 s for reviews in progress.
func (s *Server) Run(ctx context.Context) error {
	if s.http == nil {
		return errNoAddress
	}
	if s.keeper == nil {
		return s.http.Run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer cancel()
	keeping.Go(func() { s.keeper.run(ctx) }) // waited for above
	return s.http.Run(ctx)
}

// ServeHTTP handles one review.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) { s.mux.ServeHTTP(w, req) }

// handler returns the handler of a hook. An error status is not a decision: the API server applies the failure policy.
func (s *Server) handler(hook Hook, kind schema.GroupVersionKind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel, err := deadline(req.Context(), req.URL.Query().Get("timeout"), hook.options.timeout())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer cancel()
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			http.Error(w, fmt.Sprintf("%d other reviews did not end in time", maxReviews), http.StatusServiceUnavailable)
			return
		}
		admission, status, err := readReview(w, req)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		response, err := s.decide(ctx, hook, kind, admission)
		if err != nil {
			s.logger.ErrorContext(ctx, "webhook failed", s.attrs(hook, admission, err)...)
			http.Error(w, usercode.Text(err), http.StatusInternalServerError)
			return
		}
		if !response.Allowed {
			s.logger.DebugContext(ctx, "webhook rejected a request", s.attrs(hook, admission, errors.New(response.Result.Message))...)
		}
		response.UID = admission.UID
		review := &admissionv1.AdmissionReview{Response: response}
		review.SetGroupVersionKind(reviewKind())
		w.Header().Set("Content-Type", "application/json")
		// An error means that the API server waits no longer.
		_ = json.NewEncoder(w).Encode(review)
	})
}

// decide calls the functions of a hook.
func (s *Server) decide(ctx context.Context, hook Hook, kind schema.GroupVersionKind, admission *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	if got := schema.GroupVersionKind(admission.Kind); hook.empty != nil && got != kind {
		return nil, fmt.Errorf("webhook %s got an object of %s, and its Go type is for %s: change its rules", hook.options.Name, got, kind)
	}
	panicked := s.guard.Call("webhook "+hook.options.Name, func() {
		response, err = hook.review(ctx, admission)
	}, func() []any {
		return []any{"operation", admission.Operation, "namespace", admission.Namespace, "name", admission.Name}
	})
	if panicked != nil {
		return nil, panicked
	}
	return response, err
}

func (s *Server) attrs(hook Hook, admission *admissionv1.AdmissionRequest, err error) []any {
	return []any{
		"webhook", hook.options.Name, "operation", admission.Operation, "kind", admission.Kind.Kind,
		"namespace", admission.Namespace, "name", admission.Name, "user", admission.UserInfo.Username, "error", err,
	}
}

// deadline returns a context that ends at nine tenths of the time that the API server waits, so that the response
// arrives in time. The API server sends the time in the parameter timeout.
func deadline(ctx context.Context, text string, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if text != "" {
		sent, err := time.ParseDuration(text)
		if err != nil || sent <= 0 {
			return nil, nil, fmt.Errorf("the parameter timeout is %q: want a positive duration such as 10s", usercode.Shorten(text))
		}
		timeout = min(sent, time.Minute)
	}
	timeout = timeout * 9 / 10
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the webhook did not respond within %s", timeout))
	return ctx, cancel, nil
}

func reviewKind() schema.GroupVersionKind {
	return admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
}

// readReview returns the request of a review, or an error and its HTTP status.
func readReview(w http.ResponseWriter, req *http.Request) (*admissionv1.AdmissionRequest, int, error) {
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || contentType != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("the content type must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the review has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("read the review: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("decode the review: %w", err)
	}
	if got := review.GroupVersionKind(); got != reviewKind() {
		return nil, http.StatusBadRequest, fmt.Errorf("the review is %s: want %s", got, reviewKind())
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, http.StatusBadRequest, errors.New("the review has no request with a uid")
	}
	return review.Request, 0, nil
}
