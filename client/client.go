package client

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config configures a Client. New copies it.
type Config struct {
	// Cluster receives the requests. Required.
	Cluster *kube.Cluster
	// FieldOwner is the field manager of all writes: a name of at most 128 bytes. It must stay the same over
	// versions of the program, because it owns the applied fields. Set it if the file name of the program may change,
	// or if another program of that name (such as "manager") applies to the same objects. Default: the name of the
	// program, as the API server takes it from the UserAgent of the Cluster.
	FieldOwner string
	// FieldValidation determines what the API server does with unknown and duplicate fields:
	// metav1.FieldValidationIgnore drops them silently, Warn drops them with a warning, Strict rejects the
	// request. Default: the API server's, Warn.
	FieldValidation string
	// DryRun makes the API server validate all writes, including admission, and store nothing. Default false.
	DryRun bool
	// Namespace limits the client to one namespace: objects without a namespace get it, and requests for other
	// namespaces and for cluster-scoped kinds are rejected before they are sent. Default: all.
	Namespace string
	// Informers are read instead of the API server, if possible: see Informer. A read never starts an informer.
	// Default: every read makes a request to the API server.
	Informers []Informer
	// ReadOwnWrites lets reads see all earlier writes of the client, in handlers and elsewhere. A read that informers
	// could answer waits until one of them shows what the client has written of its objects. It makes a request instead
	// if none does 1 s after the write (a healthy watch is behind by milliseconds; after such a wait, reads of the kind
	// wait only 20 ms, for 10 s), or when half of the time that ctx has left is over. For 2 min it makes a request
	// after a write without a response or with status 5xx, and in a namespace after a DeleteAllOf, because their
	// effects are not known. A client of With does the same, and shares the writes if it has the same Informers.
	// Default false: reads do not wait.
	ReadOwnWrites bool
	// Interceptors receive every request, in this order: see Interceptor. Default: none.
	Interceptors []Interceptor
}

// Informer is a source of objects that a Client reads instead of the API server. *informer.Informer[T] implements it
// for every T.
//
// An informer returns the objects that it has. Only if it covers the whole selection, it also decides that an object
// does not exist. Informers that do not run (no controller has them in its Sources or Reads, or that controller has
// ended) are ignored. An informer is always slightly stale, and may lack the caller's own recent writes: package
// controller waits for these between two runs of a key, but not within a run, and Config.ReadOwnWrites everywhere. An
// object that is read as another type than the informer's lacks the fields that the informer's type lacks. Option
// FromAPI reads from the API server.
type Informer interface{ sealed }

// sealed is implemented by the informers of package informer.
type sealed = cache.Untyped

// Client makes requests to one API server: the functions of this package take it. It has no watches and no
// goroutines, and needs no Close. It is safe for concurrent use. The logger of the Cluster receives the API server's
// warnings (deprecated versions, unknown fields), each text once.
type Client struct {
	config    Config                                       // immutable after New
	informers map[schema.GroupVersionKind][]cache.Informer // of config, by kind
	send      RoundTrip
	warnings  *warnings
	applied   *appliedMemory
	written   *ownWrites // nil without Config.ReadOwnWrites
	shapes    *difference.Shapes
}

// New returns a Client. It makes no request. The error lists every mistake in config.
func New(config Config) (*Client, error) { return newClient(config, nil) }

// newClient returns a client that shares what it can with another one, which may be nil.
func newClient(config Config, with *Client) (*Client, error) {
	config.Informers, config.Interceptors = slices.Clone(config.Informers), slices.Clone(config.Interceptors)
	if config.FieldOwner == "" && config.Cluster != nil {
		config.FieldOwner = apiobject.FieldManager(config.Cluster.RESTConfig().UserAgent)
	}
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	c := &Client{
		config: config, warnings: newWarnings(config.Cluster.Logger()), applied: newAppliedMemory(),
		informers: map[schema.GroupVersionKind][]cache.Informer{}, shapes: &difference.Shapes{},
	}
	for _, informer := range config.Informers {
		untyped := cache.Of(informer)
		c.informers[untyped.Kind()] = append(c.informers[untyped.Kind()], untyped)
	}
	c.written = newOwnWrites(config)
	if with != nil && config.Cluster == with.config.Cluster {
		c.warnings, c.applied, c.shapes = with.warnings, with.applied, with.shapes
		if c.written != nil && with.written != nil && slices.EqualFunc(config.Informers, with.config.Informers,
			func(a, b Informer) bool { return reflect.ValueOf(a).Comparable() && a == b }) {
			c.written = with.written
		}
	}
	c.send = c.roundTrip
	for _, intercept := range slices.Backward(config.Interceptors) {
		c.send = intercept(c.send)
	}
	c.send = c.applied.intercept(c.send)
	return c, nil
}

// With returns a client with a Config that change has changed, for example for a dry run, for one namespace, or with
// another interceptor. Both clients share the logged warnings and, for the same cluster, the states of applies. (So an
// interceptor that changes applies must be in all clients of a field owner, or in none.)
//
//	plan, err := c.With(func(config *client.Config) { config.DryRun = true })
//
// The error lists every mistake in the changed Config.
func (c *Client) With(change func(*Config)) (*Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	config := c.Config()
	change(&config)
	return newClient(config, c)
}

// Config returns a copy of the client's Config.
func (c *Client) Config() Config {
	config := c.config
	config.Informers, config.Interceptors = slices.Clone(config.Informers), slices.Clone(config.Interceptors)
	return config
}

// Cluster returns Config.Cluster.
func (c *Client) Cluster() *kube.Cluster { return c.config.Cluster }

func (c Config) validate() error {
	var errs []error
	if c.Cluster == nil {
		errs = append(errs, errors.New("Cluster is required: kube.Connect makes one"))
	} else if c.FieldOwner == "" {
		errs = append(errs, fmt.Errorf("FieldOwner is required: the Cluster's UserAgent %q names no program",
			c.Cluster.RESTConfig().UserAgent))
	}
	errs = append(errs, checkFieldOwner(c.FieldOwner), checkFieldValidation(c.FieldValidation))
	if c.Namespace != "" {
		for _, mistake := range validation.IsDNS1123Label(c.Namespace) {
			errs = append(errs, fmt.Errorf("the Namespace %q is invalid: %s", c.Namespace, mistake))
		}
	}
	for i, informer := range c.Informers {
		if usercode.IsNil(informer) {
			errs = append(errs, fmt.Errorf("nil is among Informers, at %d", i))
		} else if untyped := cache.Of(informer); untyped.Kind().Empty() {
			errs = append(errs, fmt.Errorf("informer %q does not know the kind of its objects: give its Retriever a "+
				"Description with a GroupVersionKind", untyped.Name()))
		} else if c.Cluster != nil {
			if server, _ := kubeconfig.Server(c.Cluster.RESTConfig()); !untyped.ReadsFrom(server) {
				errs = append(errs, fmt.Errorf("informer %q does not read from the API server of the Cluster (%s): "+
					"give each Client the informers of its own Cluster", untyped.Name(), server))
			}
		}
	}
	for i, interceptor := range c.Interceptors {
		if interceptor == nil {
			errs = append(errs, fmt.Errorf("nil is among Interceptors, at %d", i))
		}
	}
	return errors.Join(errs...)
}

func checkFieldOwner(name string) error {
	if len(name) > apiobject.MaxManagerLength {
		return fmt.Errorf("FieldOwner has %d bytes: the API server takes up to %d", len(name),
			apiobject.MaxManagerLength)
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

// check rejects a nil client.
func (c *Client) check() error {
	if c == nil {
		return errors.New("the client is nil: client.New makes one")
	}
	return nil
}
