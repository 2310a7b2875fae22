package operator

import (
	"errors"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fault is a failure of a request.
type fault struct {
	name string
	// at reports whether the fault is tested at the request with that index.
	at func(points []point, i int) bool
	// onWire handles a request to the API server, outside one to the records.
	onWire  onWire
	outside func(f *faults, do func() error) error
	// staleCaches makes the handler run with caches that do not contain its writes yet.
	staleCaches bool
	// withUser is also tested with a user who acts at the same time.
	withUser bool
}

type (
	send   = func() (*http.Response, error)
	onWire = func(f *faults, r *http.Request, do send) (*http.Response, error)
)

func owner() []string        { return []string{"webapps"} }
func ofOwner() []string      { return []string{"deployments", "services", "configmaps"} }
func allResources() []string { return slices.Concat(owner(), ofOwner()) }

func everyFault() []fault { return slices.Concat(lost(), refused(), done(), late(), broken()) }

var errLost = errors.New("the connection broke")

// lost returns faults that lose requests and responses. The client cannot distinguish them.
func lost() []fault {
	answerLost := func(_ *faults, _ *http.Request, do send) (*http.Response, error) {
		drop(do())
		return nil, errReset
	}
	recordLost := func(_ *faults, do func() error) error { return errors.Join(do(), errLost) }
	return []fault{
		{name: "the answer is lost", at: everyWrite, withUser: true, onWire: answerLost, outside: recordLost},
		{name: "the answer to a read is lost", at: eachRead, onWire: answerLost},
		{
			name: "the answer is lost and events are late", at: eachWrite, staleCaches: true, withUser: true,
			onWire: func(f *faults, r *http.Request, do send) (*http.Response, error) {
				f.holdForAWhile(allResources()...)
				return answerLost(f, r, do)
			},
			outside: func(f *faults, do func() error) error {
				f.holdForAWhile(allResources()...)
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
			name: "the request is lost", at: eachWrite, withUser: true,
			onWire: func(_ *faults, r *http.Request, _ send) (*http.Response, error) {
				refuse(r)
				return nil, errReset
			},
			outside: func(*faults, func() error) error { return errLost },
		},
	}
}

// refused returns faults in which the API server, or a proxy, rejects the request.
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
		// Also for a write without a precondition, after too many conflicts.
		refused("409", eachWriteOnWire, func(r *http.Request) error {
			resource, _ := operationOf(r)
			return apierrors.NewConflict(schema.GroupResource{Resource: resource}, nameOf(r), errors.New("the object has been modified"))
		}),
		{name: "another client writes first", at: eachWriteOnWire, onWire: func(f *faults, r *http.Request, do send) (*http.Response, error) {
			f.writeAsOtherClient(r)
			return do()
		}},
	}
}

// done returns faults in which the request is carried out, but the response is an error.
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

// late returns faults that delay events for a while, starting at the write.
func late() []fault {
	delay := func(f fault, resources ...string) fault {
		return f.beforehand(func(f *faults) { f.holdForAWhile(resources...) })
	}
	return []fault{
		delay(fault{name: "late events", at: eachKind}, allResources()...),
		delay(fault{name: "late events of the WebApp", at: everyWrite, staleCaches: true, withUser: true}, owner()...),
		delay(fault{name: "late events of the children", at: eachWrite, staleCaches: true}, ofOwner()...),
	}
}

// broken returns faults that break watches before a write.
func broken() []fault {
	return []fault{
		fault{name: "the WebApp's watch breaks", at: eachKind}.beforehand(func(f *faults) { f.breakWatches(errReset, owner()...) }),
		fault{name: "the children's watches break", at: eachKind}.beforehand(func(f *faults) { f.breakWatches(io.EOF, ofOwner()...) }),
		fault{name: "all watches are too old", at: eachKind}.beforehand(func(f *faults) { f.expire(allResources()...) }),
	}
}

// beforehand calls happens before the request is carried out.
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
