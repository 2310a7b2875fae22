package usercode

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// NetworkError reports whether err itself is an error of a request that got no response (known), and whether a
// retry may help: not after a cancelled request.
func NetworkError(err error) (known, temporary bool) {
	switch err { //nolint:errorlint // the walker unwraps
	case context.Canceled:
		return true, false
	case context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed:
		return true, true
	}
	switch e := err.(type) { //nolint:errorlint // the same
	case *url.Error:
		if e.Op == "parse" { // of url.Parse: no request was made
			return false, false
		}
		return true, true
	case syscall.Errno:
		if isUnreachable(e) {
			return true, true
		}
		return false, false
	case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
		// These implement net.Error, but they report invalid addresses: a retry does not help.
		return false, false
	case net.Error: // *net.OpError, *net.DNSError and all timeouts
		return true, true
	}
	// Only the innermost error is asked for its text: the text of nested joins may be very long.
	if inner, _ := Unwrap(err); len(inner) == 0 && isStreamError(err.Error()) {
		return true, true
	}
	return false, false
}

func isUnreachable(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN:
		return true
	}
	return false
}

// isStreamError reports whether message is an HTTP/2 error of net/http. These errors have no exported type or
// value, so their text is all that identifies them.
func isStreamError(message string) bool {
	return strings.HasPrefix(message, "http2: ") || strings.HasPrefix(message, "stream error: stream ID ")
}
