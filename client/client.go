package client

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config says how a Client makes its requests. It is taken by value: New neither keeps nor
// changes the caller's.
type Config struct {
	// Cluster is where requests go. Required.
	Cluster *kube.Cluster
	// FieldOwner is the field manager of all that is written: a name of at most 128 bytes that
	// stays the same over versions of the program, for what is applied belongs to it. Apply
	// needs one. Default: none is named, and the API server takes the program's name.
	FieldOwner string
	// FieldValidation says what the API server does with fields that it does not know, and with
	// fields that come twice: metav1.FieldValidationIgnore drops them in silence, Warn drops
	// them with a warning, Strict refuses the request. Default: the API server's, Warn.
	FieldValidation string
	// DryRun has the API server check everything that is written, admission included, and keep
	// nothing. Default false.
	DryRun bool
	// Namespace limits the client to one namespace: objects without one get it, and requests for
	// other namespaces, and for kinds that live in none, are refused before they are sent.
	// Default: all.
	Namespace string
	// Informers answer reads in place of the API server, as far as they can: see Informer. No
	// read ever starts one. Default: every read asks the API server.
	Informers []Informer
	// Interceptors see every request, the first one first: see Interceptor. Default: none.
	Interceptors []Interceptor
	// Logger receives the API server's warnings (deprecated versions, unknown fields), each text
	// once. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// Informer is what a Client reads from in place of the API server; *informer.Informer[T] is one
// for every T.
//
// What an informer shows is always a little old, and what the caller itself has just written
// may not be there yet: package controller waits for that between two runs of a key, not
// within a run. Read as another type than the informer's, an object lacks what the informer's
// type does not know. FromAPI asks past the informers.
type Informer interface {
	// Untyped is for the packages of this module.
	Untyped() cache.Informer
}

// Client makes requests to one API server: the functions of this package take it. It keeps no
// watch, starts nothing and needs no Close. It is safe for concurrent use.
type Client struct {
	config   Config // immutable after New
	send     RoundTrip
	warnings *warnings
	applied  *appliedMemory
	shapes   *shapes
}

// New makes a Client. It makes no request. The error names every mistake in config.
func New(config Config) (*Client, error) {
	c, err := unchained(config)
	if err != nil {
		return nil, err
	}
	c.chain()
	return c, nil
}

// unchained makes a client that cannot send yet: see chain.
func unchained(config Config) (*Client, error) {
	config.Informers, config.Interceptors = slices.Clone(config.Informers), slices.Clone(config.Interceptors)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Client{config: config, warnings: newWarnings(config.Logger), applied: newAppliedMemory(), shapes: &shapes{}}, nil
}

// chain puts the interceptors around what sends requests, and around them what remembers.
func (c *Client) chain() {
	c.send = c.roundTrip
	for _, intercept := range slices.Backward(c.config.Interceptors) {
		c.send = intercept(c.send)
	}
	c.send = c.applied.intercept(c.send)
}

// With returns a client that differs from c in what change changes of its Config: the usual way
// to a client for a dry run, for one namespace, or with one more interceptor. What c has learnt
// is shared: which warnings were logged and, of the same cluster, what was applied. (An
// interceptor that changes what is applied so belongs into all clients of a field owner, or none.)
//
//	plan, err := c.With(func(config *client.Config) { config.DryRun = true })
//
// The error names every mistake in the changed Config.
func (c *Client) With(change func(*Config)) (*Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	config := c.Config()
	change(&config)
	other, err := unchained(config)
	if err != nil {
		return nil, err
	}
	if other.config.Logger == c.config.Logger {
		other.warnings = c.warnings
	}
	if other.config.Cluster == c.config.Cluster {
		other.applied, other.shapes = c.applied, c.shapes
	}
	other.chain()
	return other, nil
}

// Config returns what the client was made of.
func (c *Client) Config() Config {
	config := c.config
	config.Informers, config.Interceptors = slices.Clone(config.Informers), slices.Clone(config.Interceptors)
	return config
}

// Cluster returns the cluster to which the client's requests go.
func (c *Client) Cluster() *kube.Cluster { return c.config.Cluster }

func (c Config) validate() error {
	var errs []error
	if c.Cluster == nil {
		errs = append(errs, errors.New("Cluster is required: kube.Connect makes one"))
	}
	errs = append(errs, checkFieldOwner(c.FieldOwner), checkFieldValidation(c.FieldValidation))
	if c.Namespace != "" {
		for _, mistake := range validation.IsDNS1123Label(c.Namespace) {
			errs = append(errs, fmt.Errorf("the Namespace %q is none: %s", c.Namespace, mistake))
		}
	}
	for i, informer := range c.Informers {
		if usercode.IsNil(informer) {
			errs = append(errs, fmt.Errorf("nil is among Informers, at %d", i))
		} else if untyped := informer.Untyped(); untyped.Kind().Empty() {
			errs = append(errs, fmt.Errorf("informer %q does not know the kind of its objects: give its Retriever a Description with a GroupVersionKind", untyped.Name()))
		}
	}
	for i, interceptor := range c.Interceptors {
		if interceptor == nil {
			errs = append(errs, fmt.Errorf("nil is among Interceptors, at %d", i))
		}
	}
	return errors.Join(errs...)
}

// maxFieldOwner is the API server's limit: FieldManagerMaxLength of
// k8s.io/apimachinery/pkg/apis/meta/v1/validation.
const maxFieldOwner = 128

func checkFieldOwner(name string) error {
	if len(name) > maxFieldOwner {
		return fmt.Errorf("FieldOwner has %d bytes: the API server takes up to %d", len(name), maxFieldOwner)
	}
	return nil
}

func checkFieldValidation(policy string) error {
	switch policy {
	case "", metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict:
		return nil
	}
	return fmt.Errorf("FieldValidation is %q: it is one of %q", policy,
		[]string{metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict})
}

// informersOf returns the informers that may know objects of kind.
func (c *Client) informersOf(kind schema.GroupVersionKind) iter.Seq[cache.Informer] {
	return func(yield func(cache.Informer) bool) {
		for _, informer := range c.config.Informers {
			if untyped := informer.Untyped(); untyped.Kind() == kind && !yield(untyped) {
				return
			}
		}
	}
}

// check refuses a client that was never made.
func (c *Client) check() error {
	if c == nil {
		return errors.New("the client is nil: client.New makes one")
	}
	return nil
}
