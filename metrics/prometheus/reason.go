package prometheus

import (
	"errors"
	"io"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// reason is a small fixed set of reasons why an informer cannot list or watch. Logs and readiness contain the whole
// error.
type reason string

const (
	// reasonForbidden: the program's user lacks a permission (403).
	reasonForbidden reason = "Forbidden"
	// reasonUnauthorized: the API server rejects the credentials (401).
	reasonUnauthorized reason = "Unauthorized"
	// reasonNotServed: the cluster does not serve the kind (404), usually because its CustomResourceDefinition is
	// missing.
	reasonNotServed reason = "NotServed"
	// reasonUnreachable: the API server did not respond, or responded that it is unavailable.
	reasonUnreachable reason = "Unreachable"
	// reasonSilent: an open watch delivers no events although the cluster has changes.
	reasonSilent reason = "Silent"
	// reasonOther: any other error.
	reasonOther reason = "Other"
)

func reasons() []reason {
	return []reason{reasonForbidden, reasonUnauthorized, reasonNotServed, reasonUnreachable, reasonSilent, reasonOther}
}

// reasonsOf returns the reasons in the error of an informer's health, which joins the errors of its parts.
func reasonsOf(err error) []reason {
	if err == nil {
		return nil
	}
	parts := []error{err}
	// Only the outermost join contains the parts. An inner error may be a join too.
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
	case errors.Is(err, cache.ErrSilentWatch):
		return reasonSilent
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return reasonOfStatus(int(status.Status().Code))
	}
	// net.Error includes url.Error, which wraps the errors of all requests.
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return reasonUnreachable
	}
	return reasonOther
}

func reasonOfStatus(code int) reason {
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
