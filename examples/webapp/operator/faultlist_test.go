package operator

import (
	"errors"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fault is something that goes wrong with a request.
type fault struct {
	name string
	// at reports whether it is tried at the request with that index, of those of a life.
	at func(points []point, i int) bool
	// onWire is what happens to a request to the API server, outside to one to the records.
	onWire  onWire
	outside func(f *faults, do func() error) error
	// impatient has the handler called with caches that do not show yet what it has written.
	impatient bool
	// nasty is tried also with a user who acts at that moment.
	nasty bool
}

type (
	send   = func() (*http.Response, error)
	onWire = func(f *faults, r *http.Request, do send) (*http.Response, error)
)

func owner() []string     { return []string{"webapps"} }
func ofOwner() []string   { return []string{"deployments", "services", "configmaps"} }
func everybody() []string { return slices.Concat(owner(), ofOwner()) }

func everyFault() []fault { return slices.Concat(lost(), refused(), done(), late(), broken()) }

var errLost = errors.New("the connection broke")

// lost are requests and answers that do not arrive. Who made the request cannot tell which.
func lost() []fault {
	answerLost := func(_ *faults, _ *http.Request, do send) (*http.Response, error) {
		drop(do())
		return nil, errReset
	}
	recordLost := func(_ *faults, do func() error) error { return errors.Join(do(), errLost) }
	return []fault{
		{name: "the answer is lost", at: everyWrite, nasty: true, onWire: answerLost, outside: recordLost},
		{name: "the answer to a read is lost", at: eachRead, onWire: answerLost},
		{
			name: "the answer is lost and events are late", at: eachWrite, impatient: true, nasty: true,
			onWire: func(f *faults, r *http.Request, do send) (*http.Response, error) {
				f.holdForAWhile(everybody()...)
				return answerLost(f, r, do)
			},
			outside: func(f *faults, do func() error) error {
				f.holdForAWhile(everybody()...)
				return recordLost(f, do)
			},
		},
		{name: "the answer is cut", at: eachAnswer, onWire: func(_ *faults, _ *http.Request, do send) (*http.Response, error) {
			response, err := do()
			if err != nil {
				return response, err
			}
			return cut(response), nil
		}},
		{
			name: "the request is lost", at: eachWrite, nasty: true,
			onWire: func(_ *faults, r *http.Request, _ send) (*http.Response, error) {
				refuse(r)
				return nil, errReset
			},
			outside: func(*faults, func() error) error { return errLost },
		},
	}
}

// refused are requests that the API server, or what stands before it, refuses.
func refused() []fault {
	refused := func(name string, at func([]point, int) bool, why func(r *http.Request) error) fault {
		return fault{name: name, at: at, onWire: func(_ *faults, r *http.Request, _ send) (*http.Response, error) {
			refuse(r)
			return answer(r, why(r)), nil
		}}
	}
	always := func(err error) func(*http.Request) error { return func(*http.Request) error { return err } }
	return []fault{
		refused("500", eachRequest, always(apierrors.NewInternalError(errors.New("etcdserver: no leader")))),
		refused("502", eachKindOnWire, always(errBadGateway)),
		refused("503", eachKindOnWire, always(apierrors.NewServiceUnavailable("starting"))),
		refused("429", eachKindOnWire, always(apierrors.NewTooManyRequests("later", 1))),
		refused("429 of a watch", func(points []point, i int) bool { return points[i] == point{"watch webapps", creation, 1} },
			always(apierrors.NewTooManyRequests("later", 1))),
		// Also of a write without a precondition: when it met others too often.
		refused("409", eachWriteOnWire, func(r *http.Request) error {
			resource, _ := whatIsAsked(r)
			return apierrors.NewConflict(schema.GroupResource{Resource: resource}, nameOf(r), errors.New("the object has been modified"))
		}),
		{name: "somebody writes first", at: eachWriteOnWire, onWire: func(f *faults, r *http.Request, do send) (*http.Response, error) {
			f.meddle(r)
			return do()
		}},
	}
}

// done are answers that say nothing of that the request was carried out.
func done() []fault {
	done := func(name string, why error) fault {
		return fault{name: name, at: eachKindOnWire, onWire: func(_ *faults, r *http.Request, do send) (*http.Response, error) {
			drop(do())
			return answer(r, why), nil
		}}
	}
	return []fault{
		done("500 and done", apierrors.NewInternalError(errors.New("etcdserver: leader changed"))),
		done("504 and done", apierrors.NewTimeoutError("the request did not complete within the allotted timeout", 0)),
	}
}

// late are events that are held back for a while, from the write on.
func late() []fault {
	late := func(f fault, resources ...string) fault {
		return f.beforehand(func(f *faults) { f.holdForAWhile(resources...) })
	}
	return []fault{
		late(fault{name: "late events", at: eachKind}, everybody()...),
		late(fault{name: "late events of the WebApp", at: everyWrite, impatient: true, nasty: true}, owner()...),
		late(fault{name: "late events of the children", at: eachWrite, impatient: true}, ofOwner()...),
	}
}

// broken are watches that break when something is about to be written.
func broken() []fault {
	return []fault{
		fault{name: "the WebApp's watch breaks", at: eachKind}.beforehand(func(f *faults) { f.breakWatches(errReset, owner()...) }),
		fault{name: "the children's watches break", at: eachKind}.beforehand(func(f *faults) { f.breakWatches(io.EOF, ofOwner()...) }),
		fault{name: "all watches are too old", at: eachKind}.beforehand(func(f *faults) { f.expire(everybody()...) }),
	}
}

// beforehand makes something happen before a request that is carried out.
func (f fault) beforehand(happens func(f *faults)) fault {
	f.onWire = func(f *faults, _ *http.Request, do send) (*http.Response, error) {
		happens(f)
		return do()
	}
	f.outside = func(f *faults, do func() error) error {
		happens(f)
		return do()
	}
	return f
}
