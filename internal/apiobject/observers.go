package apiobject

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
)

// Observers are what receives the measurements and the Events of all parts that work with one cluster, unless a part is
// given others. The first that is set stays. They also have the defaults of its parts, and what these share. It is safe
// for concurrent use.
type Observers struct {
	sharing sync.Mutex
	shared  map[any]any // guarded by sharing
	created bool        // guarded by sharing; see HasParts

	mu      sync.Mutex
	metrics any                                       // guarded by mu
	events  any                                       // guarded by mu
	wrap    func(http.RoundTripper) http.RoundTripper // guarded by mu; measures requests

	fenced string // guarded by mu; see ClaimFence

	records     bool             // guarded by mu; see RecordPermissions
	permissions []Permission     // guarded by mu
	controlled  []controlled     // guarded by mu
	joined      map[any][]string // guarded by mu; the controllers of each part
}

// ObserversOf returns the Observers of cluster, a *kube.Cluster, or nil if cluster is nil.
func ObserversOf[C interface {
	comparable
	HTTPClient() *http.Client
}](cluster C) *Observers {
	var none C
	if cluster == none {
		return nil
	}
	client := cluster.HTTPClient()
	if client == nil { // of a Cluster that Connect has not made
		return nil
	}
	if t, ok := client.Transport.(interface{ Observers() *Observers }); ok {
		return t.Observers()
	}
	return nil
}

// SetMetrics sets the metrics, and what measures requests, which may be nil. It returns false if others are
// set, and for a nil o.
func (o *Observers) SetMetrics(metrics any, wrap func(http.RoundTripper) http.RoundTripper) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.metrics != nil {
		return false
	}
	o.metrics, o.wrap = metrics, wrap
	return true
}

// SetEvents sets the recorder of Events, unless one is set. o may be nil.
func (o *Observers) SetEvents(events any) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.events == nil {
		o.events = events
	}
}

// Shared calls use with what the parts of the cluster share: their defaults, and weak pointers by their settings. It
// does nothing for a nil o.
func (o *Observers) Shared(use func(map[any]any)) {
	if o == nil {
		return
	}
	o.sharing.Lock()
	defer o.sharing.Unlock()
	if o.shared == nil {
		o.shared = map[any]any{}
	}
	use(o.shared)
}

// SetDefaults sets the defaults of the parts that key identifies. It returns an error for a nil o, for a second call,
// and after a call of Defaults.
func (o *Observers) SetDefaults(key, config any) (err error) {
	if o == nil {
		return errors.New("no cluster of kube.Connect is known")
	}
	o.Shared(func(shared map[any]any) {
		switch present, exists := shared[key]; {
		case !exists:
			shared[key] = config
		case present == nil:
			err = errors.New("some were created already, without defaults: set defaults before")
		default:
			err = errors.New("they have defaults already: set all in one call")
		}
	})
	return err
}

// Defaults returns what SetDefaults has set for key, for a part that is created, or nil. o may be nil.
func (o *Observers) Defaults(key any) (config any) {
	o.Shared(func(shared map[any]any) {
		config = shared[key]
		shared[key] = config
	})
	return config
}

// SetCreated records that a part was created that keeps the settings of the cluster: an informer, a controller, a
// Retriever or a webhook server.
func (o *Observers) SetCreated() {
	o.Shared(func(map[any]any) { o.created = true })
}

// HasParts reports whether SetCreated was called.
func (o *Observers) HasParts() (created bool) {
	o.Shared(func(map[any]any) { created = o.created })
	return created
}

// ClaimFence records the lease under whose fence this cluster's connection writes, and returns it, or an earlier one.
// It returns lease for a nil o.
func (o *Observers) ClaimFence(lease string) (first string) {
	if o == nil {
		return lease
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced = cmp.Or(o.fenced, lease)
	return o.fenced
}

// Metrics returns the metrics of SetMetrics as an R, or nil. o may be nil.
func Metrics[R any](o *Observers) R {
	metrics, _ := o.get()
	found, _ := metrics.(R)
	return found
}

// ObserveLeadership exposes the status of an elector in the metrics of SetMetrics until stop is called. o may be nil.
func ObserveLeadership[S any](o *Observers, status func() S) (stop func()) {
	if recorder := Metrics[interface {
		ObserveLeadership(status func() S) (stop func())
	}](o); recorder != nil {
		return recorder.ObserveLeadership(status)
	}
	return func() {}
}

// Events returns given, or if that is nil the recorder of SetEvents as an R, or nil. o may be nil. Parts call it for
// each Event, so that they may be created before the recorder.
func Events[R any](given R, o *Observers) R {
	if any(given) != nil {
		return given
	}
	_, events := o.get()
	found, _ := events.(R)
	return found
}

func (o *Observers) get() (metrics, events any) {
	if o == nil {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.metrics, o.events
}

// Measured is a transport that measures requests with what SetMetrics sets at any time.
type Measured struct {
	http.RoundTripper
	By *Observers
}

// RoundTrip implements http.RoundTripper.
func (m Measured) RoundTrip(req *http.Request) (*http.Response, error) {
	m.By.mu.Lock()
	wrap := m.By.wrap
	m.By.mu.Unlock()
	if wrap == nil {
		return m.RoundTripper.RoundTrip(req)
	}
	return wrap(m.RoundTripper).RoundTrip(req)
}

// WrappedRoundTripper implements client-go's RoundTripperWrapper.
func (m Measured) WrappedRoundTripper() http.RoundTripper { return m.RoundTripper }
