package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/httpserver"
	"github.com/evenkeel-go/evenkeel/internal/observers"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// maxBodyBytes is the limit of a review. The API server accepts objects of 3 MiB (MaxRequestBodyBytes in
	// k8s.io/apiserver/pkg/server/config.go), and a review has two of them.
	maxBodyBytes = 7 << 20
	// maxConversionBytes is the limit of a conversion review. API servers before 1.36 send the objects of a list
	// together. Reviews of more than maxBodyBytes are read one after another, so that they do not need more memory than
	// others.
	maxConversionBytes = 128 << 20
	// maxReviews is the number of reviews that are handled at the same time. Further ones wait, so that the memory of
	// the server is limited.
	maxReviews = 64
	// maxBigReviews is the number of reviews of more than smallBodyBytes, or that need decodeUnit, among them. Others
	// have a slot only while they are handled, and not while they are read or answered, so that slow clients never have
	// all slots.
	maxBigReviews  = 48
	smallBodyBytes = 256 << 10
	maxFirstBuffer = 16 << 10
	// A client that sends a big review, or receives the response, must be as fast as minRate in bytes a second, after a
	// pause of maxStall: it has a slot.
	minRate  = 256 << 10
	maxStall = 2 * time.Second
	// handshakeTimeout is the time for a TLS handshake of the server with itself.
	handshakeTimeout = 2 * time.Second
	// shutdownTimeout is the time for reviews in progress at the end: the longest time-out of a hook.
	shutdownTimeout = 30 * time.Second
)

// Config configures a Server.
type Config struct {
	// Cluster knows the kinds of the hooks' Go types. It is required; the server makes no requests to it.
	Cluster *kube.Cluster
	// Hooks are served at the paths "/" and their names. At least one is required.
	Hooks []Hook
	// Listen is the address of the server, for example ":9443", or several with commas. Default: none: the Server does
	// not run, and is only an http.Handler.
	Listen string
	// Listener is used in place of Listen. Run closes it.
	Listener net.Listener
	// CertFile and KeyFile are PEM files of the certificate and its key, for example of a mounted Secret. They are read
	// again when they change. They, or Certificates, are required with Listen or Listener: the API server calls
	// webhooks with TLS only.
	CertFile, KeyFile string
	// TLS changes the settings of connections, for example MinVersion and CipherSuites. A GetCertificate that it sets
	// is in place of CertFile and KeyFile. It must not set client authentication, which is that of ClientCAFile.
	// Default: TLS 1.3.
	TLS func(*tls.Config)
	// ClientCAFile is a PEM file of the authorities that sign the client certificate of the API server. It is read
	// again when it changes. Admission, token and access reviews without a valid certificate of one of them are
	// rejected with status 401, also on connections that began before a change. Conversion reviews need none: the API
	// server has no certificate for them. Default: reviews of all clients are accepted.
	ClientCAFile string
	// Certificates makes the server create its certificates and register the hooks.
	Certificates *Certificates
	// Middleware wraps the handler of all reviews, for example to trace them with otelhttp.NewMiddleware of
	// OpenTelemetry. The context of a request is the parent of that of the hook. A ResponseWriter of the middleware
	// must have the method Unwrap of http.ResponseController, as that of otelhttp has: otherwise slow clients are not
	// limited. Default: none.
	Middleware func(http.Handler) http.Handler
	// Handlers are served beside the hooks, by their patterns for http.ServeMux, for example "GET /version". A path
	// whose last element is the name of a hook always belongs to the hook. Handlers must check their clients
	// themselves: ClientCAFile, Middleware and Metrics are for reviews only. A body has at most 7 MiB. Default: none.
	Handlers map[string]http.Handler
	// Metrics receives the measurements of the server, for example a *prometheus.Recorder of metrics/prometheus.
	// Default: that of the Cluster, or none.
	Metrics Recorder
}

// Server serves hooks. New creates one. It is safe for concurrent use.
//
// It logs failures at error level, at most 10 a minute for each hook; reviews that reach no hook's function at warning
// level, at most 10 a minute; hooks that have received no review 10 minutes after the start at info level; and rejected
// requests at debug level.
type Server struct {
	hooks   []Hook
	handler http.Handler       // of all reviews
	others  *http.ServeMux     // of Config.Handlers
	http    *httpserver.Server // nil without an address
	keeper  *keeper            // nil without Certificates
	guard   *usercode.Guard
	logger  *slog.Logger
	metrics Recorder      // may be nil
	slots   chan struct{} // has room for maxReviews
	big     chan struct{} // has room for maxBigReviews
	large   chan struct{} // has room for one review, or response, of more than maxBodyBytes
	memory  chan struct{} // has room for decodeUnits
	turn    chan struct{} // has room for the review that takes units
	shapes  wire.Shapes
	records map[string]*records // by the name of a hook; "" for others
	// unknown has the fields that conversions have met and that Go types lack.
	unknown   unknownFields
	handshake handshakes
	running   atomic.Bool
}

// New returns a Server. It reads the certificate, and does not listen. The error lists all mistakes in config.
func New(config Config) (*Server, error) {
	served := map[string]http.Handler{}
	s := &Server{
		logger: config.Cluster.Logger(), metrics: config.Metrics, records: map[string]*records{"": {}},
		slots: make(chan struct{}, maxReviews), big: make(chan struct{}, maxBigReviews), large: make(chan struct{}, 1),
		memory: make(chan struct{}, decodeUnits), turn: make(chan struct{}, 1), others: http.NewServeMux(),
	}
	s.handler = s.byName(served)
	s.handshake.timeout, s.handshake.interval = handshakeTimeout, time.Second
	s.guard = usercode.NewGuard(s.logger)
	var errs mistakes
	if config.Cluster == nil {
		return nil, errors.New("create a webhook server: Cluster is nil")
	}
	if usercode.IsNil(s.metrics) {
		s.metrics = apiobject.Metrics[Recorder](apiobject.ObserversOf(config.Cluster))
	}
	errs.addIf(len(config.Hooks) == 0, "Hooks is empty")
	apiobject.ObserversOf(config.Cluster).SetCreated()
	names := map[string]bool{}
	for i, hook := range config.Hooks {
		if hook.protocol == nil {
			errs.addIf(true, "Hooks[%d] is empty: use Validating, Mutating or Converting", i)
			continue
		}
		prepared, mistakes := hook.protocol.prepare(config.Cluster)
		if a, ok := prepared.(admission); ok {
			hook.name = a.options.Name // its default depends on the kind
		}
		if names[hook.name] {
			mistakes = append(mistakes, errors.New("another hook has the same name"))
		}
		names[hook.name] = true
		for _, err := range mistakes {
			errs.addIf(true, "Hooks[%d] %q: %w", i, hook.name, err)
		}
		if len(mistakes) > 0 {
			continue
		}
		s.hooks = append(s.hooks, Hook{hook.name, prepared})
		served[hook.name], s.records[hook.name] = s.reviews(s.hooks[len(s.hooks)-1]), &records{}
	}
	if config.Middleware != nil {
		s.handler = config.Middleware(s.handler)
		errs.addIf(usercode.IsNil(s.handler), "Middleware returned nil: it must return a handler")
	}
	server, err := s.newServer(config)
	if err := errors.Join(append(errs, s.addHandlers(config.Handlers), err)...); err != nil {
		return nil, fmt.Errorf("create a webhook server: %w", err)
	}
	s.http = server
	if s.keeper != nil {
		apiobject.ObserversOf(s.keeper.config.Client.Cluster()).Require(s.keeper.permissions()...)
		s.keeper.listening = server.Listening
	}
	return s, nil
}

// Name returns the default name of the server in a manager: webhooks.
func (s *Server) Name() string { return "webhooks" }

// Ready returns an error until the server listens, and while its certificate or Config.ClientCAFile is not valid. It
// performs a TLS handshake with the server at most once a second, so that it returns an error while the server does not
// accept connections. With Config.Certificates it also returns an error until the hooks are registered and the Secret
// is current, and while the Secret or the configurations could not be read or written for 5 minutes.
func (s *Server) Ready() error {
	if s.http == nil {
		return errNoAddress
	}
	if err := s.http.Ready(); err != nil {
		return err
	}
	if s.keeper != nil {
		if err := s.keeper.ready(); err != nil {
			return err
		}
	}
	return s.handshake.check(s.http)
}

var errNoAddress = errors.New("the webhook server has no address: set Config.Listen")

// Run serves until ctx ends, and then waits up to 30 s for reviews in progress. A second call at the same time returns
// an error.
func (s *Server) Run(ctx context.Context) error {
	if s.http == nil {
		return errNoAddress
	}
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("the webhook server runs already")
	}
	defer s.running.Store(false)
	defer s.observe()()
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() { s.reportSilence(ctx) }) // waited for above
	if s.keeper != nil {
		others.Go(func() { s.keeper.run(ctx) }) // waited for above
	}
	return s.http.Run(ctx)
}

// expiry returns the end of the current certificate, or the zero time without one.
func (s *Server) expiry() time.Time {
	if s.keeper != nil {
		return s.keeper.expiry()
	}
	return s.http.Expiry()
}

// ServeHTTP handles one review, or a request for Config.Handlers.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !s.isHook(req.URL.Path) {
		if _, pattern := s.others.Handler(req); pattern != "" {
			s.others.ServeHTTP(w, req)
			return
		}
	}
	s.handler.ServeHTTP(w, req)
}

// addHandlers adds Config.Handlers.
func (s *Server) addHandlers(handlers map[string]http.Handler) error {
	var errs mistakes
	for _, pattern := range slices.Sorted(maps.Keys(handlers)) {
		errs.addIf(s.isHook(pattern), "Handlers[%q]: the path is that of a hook", pattern)
	}
	err := httpserver.Handle(s.others, handlers, func(handler http.Handler) http.Handler {
		return http.MaxBytesHandler(handler, maxBodyBytes)
	})
	return errors.Join(append(errs, err)...)
}

// isHook reports whether a path is that of a hook.
func (s *Server) isHook(path string) bool {
	name := lastElement(path)
	return name != "" && s.records[name] != nil
}

// lastElement returns the name of a hook in a path: the registered URL can have a path, which a proxy can remove.
func lastElement(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// byName returns a handler that calls the one of the hook whose name is the last element of the path.
func (s *Server) byName(hooks map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := lastElement(req.URL.Path)
		hook, ok := hooks[name]
		switch {
		case !ok:
			names := strings.Join(slices.Sorted(maps.Keys(hooks)), ", ")
			s.log(req.Context(), slog.LevelWarn, "", "review of a hook that is not served", "path",
				short(req.URL.Path), "hooks", names)
			http.Error(w, "no hook has this name: the hooks are "+names, http.StatusNotFound)
		case req.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "a review is sent with POST", http.StatusMethodNotAllowed)
		default:
			req.Pattern = "POST /" + name // as ServeMux sets it, for middleware
			hook.ServeHTTP(w, req)
		}
	})
}

// reviews returns the handler of a hook. An error status is not a decision.
func (s *Server) reviews(hook Hook) http.Handler {
	limit, timeout := hook.protocol.limits()
	begin := s.observeHook(hook)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status, result, ended := http.StatusOK, "", begin()
		defer func() { ended(status, result == resultPanic) }()
		s.records[hook.name].received.Store(true)
		began, places, release := time.Now(), &places{}, func() {}
		ctx := observers.WithLogger(req.Context(), s.logger)
		ctx, cancel, err := deadline(ctx, req.URL.Query().Get("timeout"), timeout)
		defer cancel()
		defer places.release()
		defer func() { release() }()
		var body, text []byte
		if err == nil {
			err = s.checkClient(hook, w, req)
		}
		if err == nil {
			body, err = s.readBody(ctx, w, req, limit, places)
		}
		if err == nil {
			release, err = s.reserveReview(ctx, body, hook.protocol.shape(), places)
		}
		if err == nil {
			text, result, err = s.review(ctx, hook, body, places)
		}
		if err != nil {
			status, result = s.fail(ctx, w, hook.name, began, err)
			return
		}
		s.record(hook.name, result, began)
		w.Header().Set("Content-Type", "application/json")
		if len(text) <= 2*smallBodyBytes {
			places.release()
		}
		// Errors mean that the API server waits no longer, or that the test does not use a connection.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeFor(len(text))))
		_, _ = w.Write(text)
	})
}

// review returns the response to a review, and its result for metrics.
func (s *Server) review(ctx context.Context, hook Hook, body []byte, places *places) ([]byte, string, error) {
	response, result, err := hook.protocol.review(ctx, s, body, places)
	text, isEncoded := response.(encodedReview)
	if err != nil || isEncoded {
		return text, result, err
	}
	encoded, err := json.Marshal(response)
	if err != nil {
		err = statusError{fmt.Errorf("encode the response: %w", err), http.StatusInternalServerError}
	}
	return encoded, result, err
}

// checkClient returns an error unless the client of a review may send it. The connection ends then, so that the client
// can use another certificate. API servers present none for conversions:
// k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go.
func (s *Server) checkClient(hook Hook, w http.ResponseWriter, req *http.Request) error {
	if _, isConversion := hook.protocol.(conversion); isConversion || s.http == nil {
		return nil
	}
	err := s.http.CheckClient(req)
	if err == nil {
		return nil
	}
	w.Header().Set("Connection", "close")
	return statusError{err, http.StatusUnauthorized}
}
