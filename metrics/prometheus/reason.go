package prometheus

import (
	"errors"
	"io"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// reason is why an informer cannot list or watch, in a small and fixed set. The error
// itself, with all that it says, is in the log and in readiness.
type reason string

const (
	// reasonForbidden: the user of the program may not (403): a Role is missing.
	reasonForbidden reason = "Forbidden"
	// reasonUnauthorized: the API server does not know the user (401).
	reasonUnauthorized reason = "Unauthorized"
	// reasonNotServed: the cluster has no such kind (404): a CustomResourceDefinition is
	// missing, or has gone.
	reasonNotServed reason = "NotServed"
	// reasonUnreachable: no answer came, or one that says that none can be given now.
	reasonUnreachable reason = "Unreachable"
	// reasonSilent: a watch is open and brings nothing, while there is something to bring.
	reasonSilent reason = "Silent"
	// reasonOther: anything else.
	reasonOther reason = "Other"
)

func reasons() []reason {
	return []reason{reasonForbidden, reasonUnauthorized, reasonNotServed, reasonUnreachable, reasonSilent, reasonOther}
}

// reasonsOf returns the reasons in the error of an informer's health, which joins those of
// its parts.
func reasonsOf(err error) []reason {
	if err == nil {
		return nil
	}
	parts := []error{err}
	// Only the outermost join is of parts: an error further in may join what it likes.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	var found []reason
	for _, part := range parts {
		found = append(found, reasonOf(part))
	}
	return found
}

func reasonOf(err error) reason {
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return reasonNotServed
	case errors.Is(err, informer.ErrSilentWatch):
		return reasonSilent
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return reasonOfAnswer(int(status.Status().Code))
	}
	// url.Error, which all requests' failures are wrapped in, is a net.Error too.
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return reasonUnreachable
	}
	return reasonOther
}

func reasonOfAnswer(code int) reason {
	switch code {
	case http.StatusForbidden:
		return reasonForbidden
	case http.StatusUnauthorized:
		return reasonUnauthorized
	case http.StatusNotFound:
		return reasonNotServed
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return reasonUnreachable
	}
	return reasonOther
}
